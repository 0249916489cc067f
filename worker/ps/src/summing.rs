//! The default handler: values are added up.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
};

use elasticrun_collectives::{Element, add};

use crate::{
    core::store::{SparseStore, Store, StoreError},
    error::Refusal,
    server::{Answer, Handler, KvPairs, KvServer, RequestMeta},
};

/// Adds pushed values to those in a store.
pub struct SummingHandler<T, S = SparseStore<T>> {
    store: Mutex<S>,
    values: PhantomData<fn() -> T>,
}

impl<T, S> fmt::Debug for SummingHandler<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SummingHandler").finish_non_exhaustive()
    }
}

impl<T: Element> Default for SummingHandler<T> {
    fn default() -> Self {
        Self::new(SparseStore::default())
    }
}

impl<T: Element, S: Store<T>> SummingHandler<T, S> {
    /// A handler over a store.
    pub fn new(store: S) -> Self {
        Self {
            store: Mutex::new(store),
            values: PhantomData,
        }
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>) -> Result<Answer<T>, StoreError> {
        let mut store = self.lock();
        if meta.is_push() {
            store.push(pairs.keys, pairs.lens, pairs.values, add)?;
        }
        if !meta.is_pull() {
            return Ok(Answer::default());
        }
        let found = store.pull(pairs.keys, pairs.expected)?;
        Ok(Answer {
            values: found.values.into(),
            lens: found.lens.map(Into::into),
        })
    }
}

impl<T: Element, S: Store<T> + 'static> Handler<T> for SummingHandler<T, S> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        match self.serve(meta, pairs) {
            Ok(answer) => server.respond(meta, answer),
            Err(error) => server.refuse(meta, &Refusal::BadRequest(error.to_string())),
        }
    }
}
