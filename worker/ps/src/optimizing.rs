//! The handler of a server that optimizes: a push is a gradient, and a pull reads weights.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use elasticrun_collectives::Element;

use crate::{
    command::{Command, Reply},
    core::{
        node::NodeId,
        optimizer::{Change, Float, Optimizer, OptimizerError, Running},
        store::{SparseStore, Store},
    },
    error::Refusal,
    server::{Handler, KvPairs, KvServer, RequestMeta},
    summing::Served,
};

/// Changes the weights of a store by the gradients that are pushed. What is pulled are weights; a push-pull gets those after its
/// own push.
pub struct OptimizingHandler<T: Element, S = SparseStore<T>> {
    served: Served<T, S>,
    running: Mutex<Numbers>,
}

struct Numbers {
    running: Running,
    /// The step of the last change.
    step: u64,
}

impl<T: Element, S> fmt::Debug for OptimizingHandler<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptimizingHandler").finish_non_exhaustive()
    }
}

impl<T: Float, S: Store<T>> OptimizingHandler<T, S> {
    /// A handler over a store, which says with what new weights begin.
    ///
    /// # Errors
    /// The optimizer has a wrong number.
    pub fn new(store: S, optimizer: Optimizer) -> Result<Self, OptimizerError> {
        optimizer.check()?;
        Ok(Self {
            served: Served::new(store),
            running: Mutex::new(Numbers {
                running: Running::new(optimizer),
                step: 0,
            }),
        })
    }

    /// The optimizer now.
    pub fn optimizer(&self) -> Optimizer {
        *self.lock().running.optimizer()
    }

    /// Changes the optimizer, unless a change for a later step was there before.
    ///
    /// # Errors
    /// The change has a wrong number.
    pub fn change(&self, step: u64, change: Change) -> Result<Optimizer, OptimizerError> {
        let mut numbers = self.lock();
        if step >= numbers.step {
            numbers.running.change(change)?;
            numbers.step = step;
        }
        Ok(*numbers.running.optimizer())
    }

    /// The step of the last change.
    pub fn step(&self) -> u64 {
        self.lock().step
    }

    /// Calls a function with the store, between two requests.
    pub fn with_store<R>(&self, call: impl FnOnce(&mut S) -> R) -> R {
        self.served.with_store(call)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Numbers> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Float, S: Store<T> + 'static> Handler<T> for OptimizingHandler<T, S> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        let served = match meta.is_push() {
            true => {
                let numbers = self.lock();
                self.served.serve(meta, pairs, &numbers.running)
            }
            false => self.served.read(pairs),
        };
        match served {
            Ok(answer) => server.respond(meta, answer),
            Err(error) => server.refuse(meta, &Refusal::BadRequest(error.to_string())),
        }
    }

    fn command(&self, _from: NodeId, command: &Command, _server: &KvServer<T>) -> Reply {
        match *command {
            Command::Change { step, change } => match self.change(step, change) {
                Ok(optimizer) => Reply::Optimizer(optimizer),
                Err(error) => Reply::Refused(error.to_string()),
            },
            Command::Optimizer => Reply::Optimizer(self.optimizer()),
            _ => Reply::Unknown,
        }
    }
}
