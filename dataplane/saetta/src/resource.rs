//! What all tasks of a worker share: a connection pool, a model, a cache.
//!
//! Before: a topology function made a [`Resource`] and moved clones into factories. After: the first task that asks makes the value, the
//! others of the process get the same one. `describe` makes none.

use std::fmt;
use std::sync::{Arc, OnceLock};

type Make<T> = Box<dyn Fn() -> T + Send + Sync>;

/// One value per worker process, made when it is first asked for.
pub struct Resource<T>(Arc<(OnceLock<T>, Make<T>)>);

impl<T: Send + Sync + 'static> Resource<T> {
    /// `make` is called once in each worker, on the thread of the first task that asks; others that ask meanwhile wait for it, so ask in
    /// `open`.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Resource(Arc::new((OnceLock::new(), Box::new(make))))
    }

    /// The value.
    pub fn get(&self) -> &T {
        let (value, make) = &*self.0;
        value.get_or_init(make)
    }
}

impl<T> Clone for Resource<T> {
    fn clone(&self) -> Self {
        Resource(self.0.clone())
    }
}

impl<T> fmt::Debug for Resource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("made", &self.0.0.get().is_some()).finish()
    }
}
