//! Loads a plugin and makes its instance. Never unloads: a plugin may leave threads and thread-local destructors behind.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use saetta_sdk::PluginError;
use saetta_sdk::abi;
use saetta_sdk::call::{Builtin, Instance, Services};
use std::path::Path;

/// The file has passed `inspect`. The outer error is the loader's, the inner one the plugin's.
pub(crate) fn load(path: &Path, name: &str, config: &str, services: Services) -> Result<Result<Instance, PluginError>, libloading::Error> {
    // NEED: a plugin is foreign code.
    // SAFETY: nothing can make foreign constructors safe; that is why this process has limits, a filter, and a parent that outlives it.
    // The symbol's type is the ABI's; `inspect` has seen that it exists and that the manifest's major version is ours.
    unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)?;
        let entry = *library.get::<abi::EntryFn>(abi::ENTRY_SYMBOL.as_bytes())?;
        std::mem::forget(library);
        Ok(Instance::new(entry, name, config, services))
    }
}

/// The file has passed `inspect`. Runs its constructors and finds its entry, no more.
pub(crate) fn open(path: &Path) -> Result<Builtin, libloading::Error> {
    // NEED: a plugin is foreign code.
    // SAFETY: as in `load`.
    unsafe {
        let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL)?;
        let entry = *library.get::<abi::EntryFn>(abi::ENTRY_SYMBOL.as_bytes())?;
        std::mem::forget(library);
        Ok(Builtin::loaded("plugin", entry))
    }
}
