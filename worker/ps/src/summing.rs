//! The default handler: values are added up.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use elasticrun_collectives::{Element, add};

use crate::{
    array::Array,
    core::store::{SparseStore, Store, StoreError},
    error::Refusal,
    server::{Answer, Handler, KvPairs, KvServer, RequestMeta},
};

/// Adds pushed values to those in a store.
pub struct SummingHandler<T, S = SparseStore<T>> {
    inner: Mutex<Inner<T, S>>,
}

struct Inner<T, S> {
    store: S,
    /// Answers that were sent, or will be. Their memory is used again: fresh memory costs more than the copy.
    answers: Vec<Array<T>>,
}

/// Answers whose memory is kept.
const MAX_ANSWERS: usize = 8;

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
            inner: Mutex::new(Inner {
                store,
                answers: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T, S>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>) -> Result<Answer<T>, StoreError> {
        let mut inner = self.lock();
        if meta.is_push() {
            inner
                .store
                .push(pairs.keys, pairs.lens, pairs.values, add)?;
        }
        if !meta.is_pull() {
            return Ok(Answer::default());
        }
        let memory = inner.memory();
        let found = inner.store.pull_into(pairs.keys, pairs.expected, memory)?;
        let values = Array::from(found.values);
        if inner.answers.len() < MAX_ANSWERS {
            inner.answers.push(values.clone());
        }
        Ok(Answer {
            values,
            lens: found.lens.map(Into::into),
        })
    }
}

impl<T, S> Inner<T, S> {
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

impl<T: Element, S: Store<T> + 'static> Handler<T> for SummingHandler<T, S> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        match self.serve(meta, pairs) {
            Ok(answer) => server.respond(meta, answer),
            Err(error) => server.refuse(meta, &Refusal::BadRequest(error.to_string())),
        }
    }
}
