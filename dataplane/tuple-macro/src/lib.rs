//! `#[tuple]`: rkyv's derives, the schema, getters, and a borrowed twin for structs that hold text or bytes.
//!
//! An attribute rather than a derive, because it adds derives: users need no rkyv of their own.

#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Error, Fields, Item, ItemStruct, Type, parse_macro_input};

/// Makes a struct with named fields a tuple. See `saetta::Tuple`.
#[proc_macro_attribute]
pub fn tuple(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let attribute = Tokens::from(attribute);
    let item = parse_macro_input!(item as Item);
    expand(attribute, item).unwrap_or_else(Error::into_compile_error).into()
}

/// How a field is read and lent.
enum Access {
    /// Native value by `to_native`.
    Number,
    /// Same bytes natively and archived.
    Plain,
    /// `&str`.
    Text,
    /// `&[u8]`.
    Bytes,
    /// Reference to the archived form.
    Other,
}

fn access(ty: &Type) -> Access {
    let Type::Path(path) = ty else { return Access::Other };
    let Some(last) = path.path.segments.last() else { return Access::Other };
    match last.ident.to_string().as_str() {
        "u16" | "u32" | "u64" | "u128" | "i16" | "i32" | "i64" | "i128" | "f32" | "f64" | "char" => Access::Number,
        "u8" | "i8" | "bool" => Access::Plain,
        "String" => Access::Text,
        "Vec" if quote!(#ty).to_string().replace(' ', "").ends_with("Vec<u8>") => Access::Bytes,
        _ => Access::Other,
    }
}

/// A key by itself, natively as archived. Floats are none; of what is behind a name of its own the macro cannot know.
fn may_be_key(ty: &Type) -> bool {
    let float = || matches!(quote!(#ty).to_string().as_str(), "f32" | "f64");
    !matches!(access(ty), Access::Other) && !float()
}

fn expand(attribute: Tokens, item: Item) -> Result<Tokens, Error> {
    if !attribute.is_empty() {
        return Err(Error::new(attribute.span(), "#[tuple] takes no argument; fix: write `#[tuple]` alone"));
    }
    let item: ItemStruct = match item {
        Item::Struct(item) => item,
        other => return Err(Error::new(other.span(), "#[tuple] goes on a struct; fix: use a struct with named fields")),
    };
    if !item.generics.params.is_empty() {
        return Err(Error::new(
            item.generics.span(),
            "a tuple has one layout; fix: remove the generic parameters, or make one struct per type",
        ));
    }
    let Fields::Named(fields) = &item.fields else {
        return Err(Error::new(
            item.span(),
            "a tuple's fields have names, so that groupings can name them; fix: write `struct Name { field: Type }`",
        ));
    };

    let (name, vis, attrs) = (&item.ident, &item.vis, &item.attrs);
    let archived = format_ident!("Archived{name}");
    let twin = format_ident!("{name}Ref");
    let text = name.to_string();
    let names: Vec<_> = fields.named.iter().map(|f| f.ident.as_ref().expect("named")).collect();
    let types: Vec<_> = fields.named.iter().map(|f| &f.ty).collect();
    let name_texts: Vec<_> = names.iter().map(|n| n.to_string()).collect();
    let named = &fields.named;

    let getters = names.iter().zip(&types).map(|(n, ty)| {
        let doc = format!("Field `{n}`, read in place.");
        match access(ty) {
            Access::Number => quote!(#[doc = #doc] #[inline(always)] #vis fn #n(&self) -> #ty { self.#n.to_native() }),
            Access::Plain => quote!(#[doc = #doc] #[inline(always)] #vis fn #n(&self) -> #ty { self.#n }),
            Access::Text => quote!(#[doc = #doc] #[inline(always)] #vis fn #n(&self) -> &str { self.#n.as_str() }),
            Access::Bytes => quote!(#[doc = #doc] #[inline(always)] #vis fn #n(&self) -> &[u8] { self.#n.as_slice() }),
            Access::Other => {
                quote!(#[doc = #doc] #[inline(always)] #vis fn #n(&self) -> &<#ty as ::saetta::__rt::rkyv::Archive>::Archived { &self.#n })
            }
        }
    });
    let borrows = types.iter().any(|ty| matches!(access(ty), Access::Text | Access::Bytes));
    let twin_fields = fields.named.iter().map(|f| {
        let (n, ty, vis) = (f.ident.as_ref().expect("named"), &f.ty, &f.vis);
        match access(ty) {
            Access::Text => quote!(#[rkyv(with = ::saetta::__rt::AsStr, omit_bounds)] #vis #n: &'a str),
            Access::Bytes => quote!(#[rkyv(with = ::saetta::__rt::AsBytes, omit_bounds)] #vis #n: &'a [u8]),
            _ => quote!(#vis #n: #ty),
        }
    });
    // Fields of which a key can be read before the tuple is encoded; of the others, from the archive.
    let key_hash = {
        let keys: Vec<_> = names.iter().zip(&types).enumerate().filter(|(_, (_, ty))| may_be_key(ty)).collect();
        let places: Vec<u16> = keys.iter().map(|(place, _)| *place as u16).collect();
        let fields: Vec<_> = keys.iter().map(|(_, (name, _))| name).collect();
        quote! {
            #[inline(always)]
            fn key_hash(&self, fields: &[u16], room: &mut ::saetta::__rt::KeyBytes) -> ::core::option::Option<u64> {
                ::core::option::Option::Some(match fields {
                    #([#places] => ::saetta::__rt::KeyField::hash_alone(&self.#fields, room),)*
                    [] => return ::core::option::Option::None,
                    fields => {
                        room.clear();
                        for field in fields {
                            match *field {
                                #(#places => ::saetta::__rt::KeyField::key(&self.#fields, room),)*
                                _ => return ::core::option::Option::None,
                            }
                        }
                        room.hash()
                    }
                })
            }
        }
    };
    let twin_doc = format!("[`{name}`] with borrowed text and bytes: emits without a copy on the heap.");
    let twin_item = borrows.then(|| {
        quote! {
            #[doc = #twin_doc]
            #[derive(::saetta::__rt::rkyv::Archive, ::saetta::__rt::rkyv::Serialize)]
            #[rkyv(
                crate = ::saetta::__rt::rkyv,
                as = #archived,
                serialize_bounds(
                    __S: ::saetta::__rt::rkyv::ser::Writer + ::saetta::__rt::rkyv::ser::Allocator,
                    <__S as ::saetta::__rt::rkyv::rancor::Fallible>::Error: ::saetta::__rt::rkyv::rancor::Source
                )
            )]
            #[allow(missing_docs)]
            #vis struct #twin<'a> { #(#twin_fields),* }

            impl ::saetta::__rt::Emit for #twin<'_> {
                type Tuple = #name;
                #key_hash
            }
        }
    });

    Ok(quote! {
        #(#attrs)*
        #[derive(::saetta::__rt::rkyv::Archive, ::saetta::__rt::rkyv::Serialize, ::saetta::__rt::rkyv::Deserialize)]
        #[rkyv(crate = ::saetta::__rt::rkyv)]
        #vis struct #name { #named }

        impl #archived { #(#getters)* }

        impl ::saetta::__rt::WireType for #name {
            fn type_text() -> ::std::string::String { <#name as ::saetta::__rt::Tuple>::schema().text() }
            fn shape() -> ::saetta::__rt::Shape { ::saetta::__rt::Shape::Tuple(<#name as ::saetta::__rt::Tuple>::schema()) }
        }
        impl ::saetta::__rt::Tuple for #name {
            fn schema() -> &'static ::saetta::__rt::Schema {
                static SCHEMA: ::std::sync::LazyLock<::saetta::__rt::Schema> = ::std::sync::LazyLock::new(|| ::saetta::__rt::Schema {
                    name: #text,
                    size: ::core::mem::size_of::<#archived>(),
                    fields: ::std::vec![#(::saetta::__rt::FieldSchema {
                        name: #name_texts,
                        ty: <#types as ::saetta::__rt::WireType>::type_text(),
                        offset: ::core::mem::offset_of!(#archived, #names),
                        shape: <#types as ::saetta::__rt::WireType>::shape(),
                    }),*],
                });
                &SCHEMA
            }
        }
        // A bound that no type parameter is in would be checked here; under `for<'k>` it is checked where the key is used, so a tuple that
        // holds a float is a tuple, and no key.
        impl ::saetta::__rt::KeyField for #name where #(for<'k> #types: ::saetta::__rt::KeyField),* {
            fn key(&self, out: &mut ::saetta::__rt::KeyBytes) { #(::saetta::__rt::KeyField::key(&self.#names, out);)* }
        }
        impl ::saetta::__rt::KeyField for #archived
        where #(for<'k> <#types as ::saetta::__rt::rkyv::Archive>::Archived: ::saetta::__rt::KeyField),*
        {
            fn key(&self, out: &mut ::saetta::__rt::KeyBytes) { #(::saetta::__rt::KeyField::key(&self.#names, out);)* }
        }
        impl ::saetta::__rt::StreamType for #name {
            type Tuple = #name;
            const NAME: &'static str = #text;
        }
        impl ::saetta::__rt::Carries<#name> for #name {}
        impl ::saetta::__rt::Emit for #name {
            type Tuple = #name;
            #key_hash
        }
        #twin_item
    })
}
