//! The worker's side.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use elasticrun_collectives::{DType, Element};

use super::{Elements, MutElements};
use crate::{
    array::Array,
    core::tracker::Timestamp,
    customer::{Callback, Customer},
    error::Error,
    in_flight::Pull,
    postoffice::Postoffice,
    pull::{Expect, Memory},
    worker::{KvWorker, RequestOptions, Slicer},
};

/// A [`KvWorker`] of any type of values. The callback of a request is not called if the function that makes the request fails, and
/// not before that has sent all of it.
pub trait AnyWorker: Send + Sync + fmt::Debug {
    /// The type of values.
    fn dtype(&self) -> DType;

    /// The customer.
    fn customer(&self) -> &Customer;

    /// See [`KvWorker::set_slicer`].
    fn set_slicer(&self, slicer: Slicer);

    /// See [`KvWorker::push_with`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The elements are of the type of this worker.
    unsafe fn push(
        &self,
        keys: Array<u64>,
        values: Elements,
        options: RequestOptions,
    ) -> Result<Timestamp, Error>;

    /// See [`KvWorker::pull_with`]. Without memory the result is a new array.
    ///
    /// # Errors
    /// As there, or the memory has not as many elements as the result.
    ///
    /// # Safety
    /// The elements are of the type of this worker.
    unsafe fn pull(
        &self,
        keys: Array<u64>,
        expect: Expect,
        memory: Option<MutElements>,
        options: RequestOptions,
    ) -> Result<Box<dyn AnyPull>, Error>;

    /// See [`KvWorker::push_pull_with`]. Without memory the result is a new array.
    ///
    /// # Errors
    /// As there, or the memory has not as many elements as the result.
    ///
    /// # Safety
    /// The elements are of the type of this worker.
    unsafe fn push_pull(
        &self,
        keys: Array<u64>,
        values: Elements,
        memory: Option<MutElements>,
        options: RequestOptions,
    ) -> Result<Box<dyn AnyPull>, Error>;
}

/// A [`Pull`] of any type of values.
pub trait AnyPull: Send + Sync + fmt::Debug {
    /// The number of the request.
    fn timestamp(&self) -> Timestamp;

    /// Waits for the result. See [`Pull::wait_for`].
    ///
    /// # Errors
    /// As there.
    fn wait_for(self: Box<Self>, limit: Duration) -> Result<AnyPulled, Error>;
}

/// What a pull got.
#[derive(Clone, Debug)]
pub struct AnyPulled {
    /// The values, aligned for their type. None if memory was given.
    pub values: Bytes,
    /// How many values each key has, if the pull did not say and they differ.
    pub lens: Option<Vec<u32>>,
}

/// A worker with this type of values. See [`KvWorker::new`].
///
/// # Errors
/// As there.
pub fn new_worker(
    postoffice: &Postoffice,
    dtype: DType,
    app: u32,
    customer: u32,
) -> Result<Box<dyn AnyWorker>, Error> {
    with_element!(dtype, T => Ok(Box::new(KvWorker::<T>::new(postoffice, app, customer)?)))
}

/// Whether the callback of a request may be called.
enum Gate {
    /// The request is being made.
    Closed { callback: Callback },
    /// It was completed meanwhile.
    Passed {
        callback: Callback,
        result: Result<(), Error>,
    },
    /// The callback is called when the request is completed, and was called.
    Open(Option<Callback>),
}

/// Makes a request, and calls its callback only if that succeeds.
fn gated<R>(
    options: RequestOptions,
    make: impl FnOnce(RequestOptions) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut options = options;
    let Some(callback) = options.callback.take() else {
        return make(options);
    };
    let gate = Arc::new(Mutex::new(Gate::Closed { callback }));
    let shared = Arc::clone(&gate);
    options.callback = Some(Box::new(move |result| {
        let mut gate = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *gate, Gate::Open(None)) {
            Gate::Closed { callback } => *gate = Gate::Passed { callback, result },
            Gate::Open(Some(callback)) => {
                drop(gate);
                callback(result);
            }
            Gate::Open(None) | Gate::Passed { .. } => {}
        }
    }));
    let made = make(options);
    let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
    match (std::mem::replace(&mut *gate, Gate::Open(None)), &made) {
        (Gate::Closed { callback }, Ok(_)) => *gate = Gate::Open(Some(callback)),
        (Gate::Passed { callback, result }, Ok(_)) => {
            drop(gate);
            callback(result);
        }
        _ => {}
    }
    made
}

impl<T: Element> AnyPull for Pull<T> {
    fn timestamp(&self) -> Timestamp {
        Self::timestamp(self)
    }

    fn wait_for(self: Box<Self>, limit: Duration) -> Result<AnyPulled, Error> {
        let pulled = (*self).wait_for(limit)?;
        Ok(AnyPulled {
            values: Array::from(pulled.values).bytes(),
            lens: pulled.lens,
        })
    }
}

impl<T: Element> AnyWorker for KvWorker<T> {
    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn customer(&self) -> &Customer {
        Self::customer(self)
    }

    fn set_slicer(&self, slicer: Slicer) {
        Self::set_slicer(self, slicer);
    }

    unsafe fn push(
        &self,
        keys: Array<u64>,
        values: Elements,
        options: RequestOptions,
    ) -> Result<Timestamp, Error> {
        // SAFETY: as the caller promises.
        let values = unsafe { values.into_array::<T>() };
        gated(options, |options| self.push_with(keys, values, options))
    }

    unsafe fn pull(
        &self,
        keys: Array<u64>,
        expect: Expect,
        memory: Option<MutElements>,
        options: RequestOptions,
    ) -> Result<Box<dyn AnyPull>, Error> {
        // SAFETY: as the caller promises.
        let memory = memory.map_or(Memory::from(Vec::new()), |memory| unsafe {
            memory.into_memory::<T>()
        });
        let pull = gated(options, |options| {
            self.pull_with(keys, expect, memory, options)
        });
        Ok(Box::new(pull?))
    }

    unsafe fn push_pull(
        &self,
        keys: Array<u64>,
        values: Elements,
        memory: Option<MutElements>,
        options: RequestOptions,
    ) -> Result<Box<dyn AnyPull>, Error> {
        // SAFETY: as the caller promises.
        let values = unsafe { values.into_array::<T>() };
        // SAFETY: as the caller promises.
        let memory = memory.map_or(Memory::from(Vec::new()), |memory| unsafe {
            memory.into_memory::<T>()
        });
        let pull = gated(options, |options| {
            self.push_pull_with(keys, values, memory, options)
        });
        Ok(Box::new(pull?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn options() -> (RequestOptions, std::sync::mpsc::Receiver<Result<(), Error>>) {
        let (send, called) = channel();
        let options = RequestOptions {
            callback: Some(Box::new(move |result| send.send(result).unwrap())),
            ..RequestOptions::default()
        };
        (options, called)
    }

    #[test]
    fn a_callback_is_called_once_and_not_for_a_request_that_was_not_made() {
        // Completed before it is made, afterwards, and not made.
        let (given, called) = options();
        gated(given, |options| {
            options.callback.unwrap()(Err(Error::Finalized));
            Ok(())
        })
        .unwrap();
        assert_eq!(called.try_recv(), Ok(Err(Error::Finalized)));

        let (given, called) = options();
        let callback = gated(given, |options| Ok(options.callback.unwrap())).unwrap();
        assert!(called.try_recv().is_err());
        callback(Ok(()));
        assert_eq!(called.try_recv(), Ok(Ok(())));

        let (given, called) = options();
        let failed: Result<(), Error> = gated(given, |options| {
            options.callback.unwrap()(Err(Error::Finalized));
            Err(Error::Finalized)
        });
        assert_eq!(failed, Err(Error::Finalized));
        assert!(called.try_recv().is_err());
    }
}
