//! The builder: what a topology function writes into, and how it becomes an engine's program.
//!
//! Types are checked by the compiler as the wiring is written; names and numbers are checked in [`Topology::build`], all errors at once.

use crate::component::{Bolt, BoltTask, Emits, Handle, RunFn, Spout, SpoutTask};
use crate::dead_letter::DeadLetter;
use crate::dispatch;
use crate::grouping::GroupingFor;
use crate::run::Summary;
use saetta_engine::{Chooser, ComponentFactory, DeadLetterFn, Program, ProgramComponent};
use saetta_model::config::{Config, Owner, Source};
use saetta_model::name::Name;
use saetta_model::topology::{
    ComponentKind, ComponentSpec, FieldSpec, Format, Grouping, InputSpec, Resources, SharedMemory, StreamSpec, TopologySpec, request_milli,
};
use saetta_tuple::{FORMAT, StreamType, Tuple, check};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// (component, stream) to its number in the topology.
type Numbers = BTreeMap<(Name, Name), u16>;
/// Makes the factory once streams have numbers.
type LateFactory = Box<dyn FnOnce(&Numbers) -> ComponentFactory>;
/// What `run` calls at the end.
pub(crate) type AtEnd = Box<dyn FnOnce(&Summary) -> crate::Result<()>>;

/// A topology being written.
#[derive(Default)]
pub struct Topology {
    components: Vec<Built>,
    config: BTreeMap<String, String>,
    errors: Vec<String>,
    pub(crate) at_end: Option<AtEnd>,
}

struct Built {
    spec: ComponentSpec,
    factory: LateFactory,
    tags: Vec<TypeId>,
    checks: Vec<fn(&[u8]) -> bool>,
    choosers: Vec<Option<Chooser>>,
    dead_letters: Option<(usize, DeadLetterFn)>,
}

/// A stream that was declared: what `.input` takes.
pub struct Stream<S> {
    component: Name,
    of: PhantomData<fn(S)>,
}

impl<S> Clone for Stream<S> {
    fn clone(&self) -> Self {
        Stream { component: self.component.clone(), of: PhantomData }
    }
}

impl Topology {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a spout. `make` is called once per task, on the worker.
    pub fn spout<S: Spout>(&mut self, id: &str, make: impl Fn() -> S + Send + Sync + 'static) -> SpoutBuilder<'_, S> {
        let factory: ComponentFactory = Arc::new(move || Box::new(SpoutTask(make())));
        let at = self.add(id, ComponentKind::Spout, Box::new(move |_| factory));
        self.components[at].spec.tracked = S::TRACKED;
        SpoutBuilder { inner: Inner { topology: self, at }, of: PhantomData }
    }

    /// Adds a bolt. `make` is called once per task, on the worker.
    pub fn bolt<B: Bolt>(&mut self, id: &str, make: impl Fn() -> B + Send + Sync + 'static) -> BoltBuilder<'_, B> {
        let handlers: Handlers<B> = Arc::default();
        let wired = handlers.clone();
        let late: LateFactory = Box::new(move |numbers| {
            let mut table: Vec<Option<RunFn<B>>> = vec![None; numbers.len()];
            for (component, stream, run) in wired.lock().expect("no panic while wiring").iter() {
                if let Some(number) = numbers.get(&(component.clone(), stream.clone())) {
                    table[*number as usize] = Some(*run);
                }
            }
            let handlers: Arc<[Option<RunFn<B>>]> = table.into();
            Arc::new(move || Box::new(BoltTask { bolt: make(), handlers: handlers.clone() }))
        });
        let at = self.add(id, ComponentKind::Bolt, late);
        self.components[at].spec.tracked = B::JOINS;
        BoltBuilder { inner: Inner { topology: self, at }, handlers }
    }

    /// Stream `T` of a component that is added later: for a bolt that reads what comes back to it. `build` says so where no such component
    /// declares it. A cycle whose bolts multiply fills up: then what waits in it fails, so that the rest goes on, and that is reported.
    pub fn later<T: StreamType>(&mut self, id: &str) -> Stream<T> {
        let component = Name::new(id).unwrap_or_else(|e| {
            self.errors.push(e.to_string());
            Name::system("__later")
        });
        Stream { component, of: PhantomData }
    }

    /// Sets a configuration key of the topology; `submit --set` wins over it.
    pub fn config(&mut self, key: &str, value: impl ToString) -> &mut Self {
        let value = value.to_string();
        if let Err(e) = Config::new(Owner::Topology).set(key, &value, Source::Code) {
            self.errors.push(e.to_string());
        }
        self.config.insert(key.to_owned(), value);
        self
    }

    /// What `run` prints or does when everything has ended, in place of the summary table. Not called on a cluster.
    pub fn at_end(&mut self, report: impl FnOnce(&Summary) -> crate::Result<()> + 'static) -> &mut Self {
        self.at_end = Some(Box::new(report));
        self
    }

    /// Adds a spout of the engine's kind that emits stream `S`, tracked.
    pub(crate) fn raw_spout<S: StreamType>(&mut self, id: &str, factory: ComponentFactory) -> Stream<S> {
        let at = self.add(id, ComponentKind::Spout, Box::new(move |_| factory));
        self.components[at].spec.tracked = true;
        Inner { topology: self, at }.stream::<S>()
    }

    /// Adds a bolt of the engine's kind that reads one stream.
    pub(crate) fn raw_bolt<S: StreamType>(&mut self, id: &str, from: &Stream<S>, grouping: Grouping, factory: ComponentFactory) {
        let at = self.add(id, ComponentKind::Bolt, Box::new(move |_| factory));
        let Ok(stream) = Name::new(S::NAME) else { return };
        self.components[at].spec.inputs.push(InputSpec { from: from.component.clone(), stream, grouping });
        self.components[at].choosers.push(None);
    }

    fn add(&mut self, id: &str, kind: ComponentKind, factory: LateFactory) -> usize {
        let name = Name::new(id).unwrap_or_else(|e| {
            self.errors.push(e.to_string());
            Name::new(&format!("invalid-{}", self.components.len())).expect("valid")
        });
        let spec = ComponentSpec {
            id: name,
            kind,
            executors: 1,
            tasks: None,
            resources: Resources::default(),
            outputs: Vec::new(),
            inputs: Vec::new(),
            config: BTreeMap::new(),
            tracked: false,
        };
        self.components.push(Built { spec, factory, tags: Vec::new(), checks: Vec::new(), choosers: Vec::new(), dead_letters: None });
        self.components.len() - 1
    }

    /// Settles the topology. The error holds every fault, one a line.
    pub fn build(self) -> Result<Program, String> {
        let mut errors = self.errors;
        let mut components = self.components;
        components.sort_by(|a, b| a.spec.id.cmp(&b.spec.id));
        let mut numbers = Numbers::new();
        for component in &components {
            for output in &component.spec.outputs {
                let number = numbers.len() as u16;
                numbers.insert((component.spec.id.clone(), output.name.clone()), number);
            }
        }
        let (archive, endian, unaligned, pointer_bits) = FORMAT;
        let spec = TopologySpec {
            saetta: env!("CARGO_PKG_VERSION").to_owned(),
            format: Format { archive: archive.into(), endian: endian.into(), unaligned, pointer_bits },
            components: components.iter().map(|c| c.spec.clone()).collect(),
        };
        if let Err(e) = spec.check() {
            errors.push(e.to_string());
        }
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        let components = components
            .into_iter()
            .map(|c| ProgramComponent {
                dead_letters: c.dead_letters,
                factory: (c.factory)(&numbers),
                tags: c.tags,
                checks: c.checks,
                choosers: c.choosers,
            })
            .collect();
        Ok(Program { spec, config: self.config, components })
    }
}

/// What spouts and bolts have in common while they are wired.
struct Inner<'t> {
    topology: &'t mut Topology,
    at: usize,
}

impl Inner<'_> {
    fn spec(&mut self) -> &mut ComponentSpec {
        &mut self.topology.components[self.at].spec
    }

    fn stream<S: StreamType>(&mut self) -> Stream<S> {
        let schema = <S::Tuple as Tuple>::schema();
        let built = &mut self.topology.components[self.at];
        let component = built.spec.id.clone();
        match Name::new(S::NAME) {
            Err(e) => self.topology.errors.push(format!("component `{component}`: stream name: {e}")),
            Ok(name) if built.tags.contains(&TypeId::of::<S>()) => drop(name),
            Ok(name) => {
                let fields = schema.fields.iter().map(|f| FieldSpec { name: f.name.to_owned(), ty: f.ty.clone() }).collect();
                built.spec.outputs.push(StreamSpec { name, schema: schema.id(), fields });
                built.tags.push(TypeId::of::<S>());
                built.checks.push(check::<S::Tuple>);
            }
        }
        Stream { component, of: PhantomData }
    }

    fn config(&mut self, key: &str, value: String) {
        let known = saetta_model::config::find(key).is_none_or(|k| k.scope == saetta_model::config::Scope::Component);
        let checked = Config::new(Owner::Topology).set(key, &value, Source::Code);
        let id = self.spec().id.clone();
        match checked {
            Err(e) => self.topology.errors.push(format!("component `{id}`: {e}")),
            Ok(()) if !known => {
                self.topology.errors.push(format!("component `{id}`: `{key}` is a key of the whole topology; set it with `t.config`"))
            }
            Ok(()) => drop(self.spec().config.insert(key.to_owned(), value)),
        }
    }
}

fn mib(mb: f64) -> i64 {
    (mb * f64::from(1 << 20)).ceil() as i64
}

macro_rules! common {
    () => {
        /// Parallelism hint: executors at submit. Default 1.
        #[must_use]
        pub fn executors(mut self, n: u32) -> Self {
            self.inner.spec().executors = n;
            self
        }
        /// Tasks, fixed for the topology's life. Default: as many as executors.
        #[must_use]
        pub fn tasks(mut self, n: u32) -> Self {
            self.inner.spec().tasks = Some(n);
            self
        }
        /// CPU one executor asks for, in percent of one core: for schedulers, and for the core planner's balance.
        #[must_use]
        pub fn cpu_load(mut self, percent: f64) -> Self {
            self.inner.spec().resources.cpu_milli_pct = request_milli(percent);
            self
        }
        /// Memory one executor asks for, in MiB: what counts against `topology.worker.max.heap.size.mb`, and what does not.
        #[must_use]
        pub fn memory_load(mut self, on_heap_mb: f64, off_heap_mb: f64) -> Self {
            let resources = &mut self.inner.spec().resources;
            resources.off_heap_bytes = mib(off_heap_mb);
            resources.memory_bytes = mib(on_heap_mb) + resources.off_heap_bytes;
            self
        }
        /// Another resource one executor asks for, in units.
        #[must_use]
        pub fn resource(mut self, kind: &str, amount: f64) -> Self {
            self.inner.spec().resources.generic_milli.insert(kind.to_owned(), request_milli(amount));
            self
        }
        /// Memory its executors share, in MiB, with each other and with other components that name the same block: once in each worker
        /// (counting against the heap, and not), and once on each node.
        #[must_use]
        pub fn shared_memory(mut self, name: &str, on_heap_mb: f64, off_heap_worker_mb: f64, off_heap_node_mb: f64) -> Self {
            self.inner.spec().resources.shared.push(SharedMemory {
                name: name.to_owned(),
                on_heap_bytes: mib(on_heap_mb),
                off_heap_worker_bytes: mib(off_heap_worker_mb),
                off_heap_node_bytes: mib(off_heap_node_mb),
            });
            self
        }
        /// Most of its executors on one node, for schedulers that look at constraints.
        #[must_use]
        pub fn max_colocation(mut self, executors: u32) -> Self {
            self.inner.config("topology.component.max.colocation", executors.to_string());
            self
        }
        /// A component that may not share a worker with it, for schedulers that look at constraints. Several by several calls.
        #[must_use]
        pub fn incompatible_with(mut self, component: &str) -> Self {
            let key = "topology.component.incompatible";
            let before = self.inner.spec().config.get(key).map(|all| format!("{all},")).unwrap_or_default();
            self.inner.config(key, before + component);
            self
        }
        /// The core its executors run on, by hand.
        #[must_use]
        pub fn core(mut self, core: u32) -> Self {
            self.inner.config("executor.core", core.to_string());
            self
        }
        /// Its calls block (a database, a file, a lock): each executor gets a thread of its own, so that no other component waits with it.
        #[must_use]
        pub fn blocking(mut self) -> Self {
            self.inner.config("executor.blocking", true.to_string());
            self
        }
        /// A key of this component's configuration.
        #[must_use]
        pub fn config(mut self, key: &str, value: impl ToString) -> Self {
            self.inner.config(key, value.to_string());
            self
        }
    };
}

/// A spout being wired.
pub struct SpoutBuilder<'t, S> {
    inner: Inner<'t>,
    of: PhantomData<fn(S)>,
}

impl<S: Spout> SpoutBuilder<'_, S> {
    common!();

    /// Declares that it emits stream `T`, for others to read.
    pub fn stream<T: StreamType>(&mut self) -> Stream<T>
    where
        S: Emits<T>,
    {
        self.inner.stream::<T>()
    }
}

/// Handlers collected while a bolt is wired: from which component and stream, by which function.
type Handlers<B> = Arc<Mutex<Vec<(Name, Name, RunFn<B>)>>>;

/// A bolt being wired.
pub struct BoltBuilder<'t, B> {
    inner: Inner<'t>,
    handlers: Handlers<B>,
}

impl<B: Bolt> BoltBuilder<'_, B> {
    common!();

    /// How often each task ticks, in milliseconds.
    #[must_use]
    pub fn tick_ms(mut self, ms: u64) -> Self {
        self.inner.config("topology.tick.tuple.freq.secs", format!("{}", ms as f64 / 1e3));
        self
    }

    /// Declares where inputs go that this bolt fails for good, by `Fail::Drop` or a panic: each is emitted there as a [`DeadLetter`], and counts
    /// as handled once that was. A `Fail::Retry` still fails its tree. Sets `executor.panic.policy` = dead-letter.
    pub fn dead_letters(&mut self) -> Stream<DeadLetter> {
        self.inner.config("executor.panic.policy", "dead-letter".into());
        let stream = self.inner.stream::<DeadLetter>();
        let built = &mut self.inner.topology.components[self.inner.at];
        let output = built.tags.iter().position(|tag| *tag == TypeId::of::<DeadLetter>());
        built.dead_letters = output.map(|output| (output, crate::dead_letter::emit as DeadLetterFn));
        stream
    }

    /// Reads a stream. `grouping` says which task gets a tuple: `Shuffle`, `LocalOrShuffle`, `LoadAware`, `by!(Tuple.field)`,
    /// `partial!(Tuple.field)`, `All`, `Global`, `Direct`, `Custom(MyGrouping::default)`.
    #[must_use]
    pub fn input<S: StreamType>(self, from: &Stream<S>, grouping: impl GroupingFor<S>) -> Self
    where
        B: Handle<S>,
    {
        self.read(from, Ok(grouping.grouping()), dispatch::run::<B, S>)
    }

    /// Wires one input to the function that handles its frames. `grouping`, or what is wrong with it.
    pub(crate) fn read<S: StreamType>(
        mut self,
        from: &Stream<S>,
        grouping: Result<(Grouping, Option<Chooser>), String>,
        run: RunFn<B>,
    ) -> Self {
        let id = self.inner.spec().id.clone();
        let (grouping, chooser) = grouping.unwrap_or_else(|e| {
            self.inner.topology.errors.push(format!("bolt `{id}`: {e}"));
            // The input stays, so that nothing else is told of it.
            (Grouping::Shuffle, None)
        });
        // A name that is none was told when the stream was declared.
        if let Ok(stream) = Name::new(S::NAME) {
            self.inner.spec().inputs.push(InputSpec { from: from.component.clone(), stream: stream.clone(), grouping });
            self.inner.topology.components[self.inner.at].choosers.push(chooser);
            self.handlers.lock().expect("no panic while wiring").push((from.component.clone(), stream, run));
        }
        self
    }

    /// Declares that it emits stream `T`, for others to read.
    pub fn stream<T: StreamType>(&mut self) -> Stream<T>
    where
        B: Emits<T>,
    {
        self.inner.stream::<T>()
    }
}
