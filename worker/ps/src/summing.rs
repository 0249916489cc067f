//! The default handler: values are added up.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use elasticrun_collectives::{Element, add};

use crate::{
    array::Array,
    core::store::{Combine, SparseStore, Store, StoreError},
    error::Refusal,
    server::{Answer, Handler, KvPairs, KvServer, RequestMeta},
};

/// Adds pushed values to those in a store.
pub struct SummingHandler<T, S = SparseStore<T>> {
    served: Served<T, S>,
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
            served: Served::new(store),
        }
    }

    /// Calls a function with the store, between two requests.
    pub fn with_store<R>(&self, call: impl FnOnce(&mut S) -> R) -> R {
        self.served.with_store(call)
    }
}

impl<T: Element, S: Store<T> + 'static> Handler<T> for SummingHandler<T, S> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        match self.served.serve(meta, pairs, add) {
            Ok(answer) => server.respond(meta, answer),
            Err(error) => server.refuse(meta, &Refusal::BadRequest(error.to_string())),
        }
    }
}

/// A store that requests of several threads push to and pull from.
pub(crate) struct Served<T, S> {
    inner: Mutex<Inner<T, S>>,
}

struct Inner<T, S> {
    store: S,
    /// Answers that were sent, or will be. Their memory is used again: fresh memory costs more than the copy.
    answers: Vec<Array<T>>,
}

/// Answers whose memory is kept.
const MAX_ANSWERS: usize = 8;

impl<T: Element, S: Store<T>> Served<T, S> {
    pub(crate) fn new(store: S) -> Self {
        Self {
            inner: Mutex::new(Inner {
                store,
                answers: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T, S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with_store<R>(&self, call: impl FnOnce(&mut S) -> R) -> R {
        call(&mut self.lock().store)
    }

    /// Applies a push and reads for a pull, in this order and without another request between.
    pub(crate) fn serve(
        &self,
        meta: &RequestMeta,
        pairs: KvPairs<'_, T>,
        combine: impl Combine<T>,
    ) -> Result<Answer<T>, StoreError> {
        let mut inner = self.lock();
        if meta.is_push() {
            let store = &mut inner.store;
            store.push(pairs.keys, pairs.lens, pairs.values, combine)?;
        }
        match meta.is_pull() {
            true => inner.read(pairs),
            false => Ok(Answer::default()),
        }
    }

    /// Reads for a pull.
    pub(crate) fn read(&self, pairs: KvPairs<'_, T>) -> Result<Answer<T>, StoreError> {
        self.lock().read(pairs)
    }
}

impl<T: Element, S: Store<T>> Inner<T, S> {
    fn read(&mut self, pairs: KvPairs<'_, T>) -> Result<Answer<T>, StoreError> {
        let memory = self.memory();
        let found = self.store.pull_into(pairs.keys, pairs.expected, memory)?;
        let values = Array::from(found.values);
        if self.answers.len() < MAX_ANSWERS {
            self.answers.push(values.clone());
        }
        Ok(Answer {
            values,
            lens: found.lens.map(Into::into),
        })
    }

    /// Memory of an answer that was sent.
    fn memory(&mut self) -> Vec<T> {
        for index in 0..self.answers.len() {
            match self.answers.swap_remove(index).into_vec() {
                Ok(memory) => return memory,
                Err(answer) => {
                    self.answers.push(answer);
                    let last = self.answers.len() - 1;
                    self.answers.swap(index, last);
                }
            }
        }
        Vec::new()
    }
}
