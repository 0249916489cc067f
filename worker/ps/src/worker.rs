//! The worker's side: push and pull.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use elasticrun_collectives::Element;

use crate::{
    array::Array,
    core::{
        frame::{Header, Kind, PULL, PUSH, REQUEST},
        keys::{self, KeyError, Lens},
        node::NodeId,
        ranges::RangeMap,
        slicer::{Parts, Slice, parts_by_range, slices},
        tracker::Timestamp,
    },
    customer::{Callback, Customer},
    error::Error,
    in_flight::{InFlight, Pull},
    net::Pace,
    node::{AnswerSink, Elastic},
    postoffice::Postoffice,
    pull::{Destination, Expect, Memory},
    requests::{Kept, Replayed},
};

/// Cuts the keys of a request: which keys go to which server.
pub type Slicer = Arc<dyn Fn(&[u64], &RangeMap) -> Parts + Send + Sync>;

/// What a request says beside keys and values.
#[derive(Default)]
pub struct RequestOptions {
    /// How many values each key has, if they differ.
    pub lens: Option<Array<u32>>,
    /// A number for the handler.
    pub cmd: i32,
    /// Requests of higher priority overtake others that wait to be sent.
    pub priority: i32,
    /// Is called when the request is completed.
    pub callback: Option<Callback>,
}

impl fmt::Debug for RequestOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestOptions")
            .field("lens", &self.lens)
            .field("cmd", &self.cmd)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Pushes and pulls the values of an app.
pub struct KvWorker<T: Element> {
    inner: Arc<InFlight<T>>,
    slicer: Mutex<Option<Slicer>>,
}

impl<T: Element> fmt::Debug for KvWorker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KvWorker")
            .field(&self.inner.customer)
            .finish()
    }
}

impl<T: Element> KvWorker<T> {
    /// A customer of an app. Several may be in one process, with different numbers.
    ///
    /// # Errors
    /// The process has this customer already.
    pub fn new(postoffice: &Postoffice, app: u32, customer: u32) -> Result<Self, Error> {
        let node = Arc::clone(postoffice.node());
        let inner = Arc::new(InFlight {
            node: Arc::clone(&node),
            customer: Customer::new(Arc::clone(&node), app, customer),
            pulls: Mutex::default(),
            replayed: (node.elastic.as_ref()).map(|elastic| Replayed::new(elastic.session())),
        });
        let sink: Arc<dyn AnswerSink> = Arc::<InFlight<T>>::clone(&inner);
        node.registry
            .add_customer(Kind::Data, app, customer, sink)?;
        Ok(Self {
            inner,
            slicer: Mutex::default(),
        })
    }

    /// The customer.
    pub fn customer(&self) -> &Customer {
        &self.inner.customer
    }

    /// Replaces the rule by which keys are given to servers.
    pub fn set_slicer(&self, slicer: Slicer) {
        *self.slicer.lock().unwrap_or_else(PoisonError::into_inner) = Some(slicer);
    }

    /// Adds values to those of the servers. All keys have equally many.
    ///
    /// Returns at once: the arrays are shared until they are sent. A `Vec` is taken over, a slice is copied.
    ///
    /// # Errors
    /// The arrays do not belong together, a server is lost, or too much waits to be sent.
    pub fn push(
        &self,
        keys: impl Into<Array<u64>>,
        values: impl Into<Array<T>>,
    ) -> Result<Timestamp, Error> {
        self.push_with(keys, values, RequestOptions::default())
    }

    /// [`push`](Self::push) with options.
    ///
    /// # Errors
    /// As for `push`.
    pub fn push_with(
        &self,
        keys: impl Into<Array<u64>>,
        values: impl Into<Array<T>>,
        options: RequestOptions,
    ) -> Result<Timestamp, Error> {
        let (keys, values) = (keys.into(), values.into());
        let lens = keys::check(&keys, options.lens.as_deref(), values.len())?;
        let slices = self.cut(&keys, lens)?;
        let options_lens = options.lens.clone();
        let request = Request {
            keys,
            lens: options_lens,
            values,
            per_key: per_key(lens),
            flags: REQUEST | PUSH,
            slices: &slices,
        };
        self.begin(&request, options, |_| {})
    }

    /// Reads `per_key` values for each key.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn pull(&self, keys: impl Into<Array<u64>>, per_key: usize) -> Result<Pull<T>, Error> {
        self.pull_with(
            keys,
            Expect::PerKey(per_key),
            Vec::new(),
            RequestOptions::default(),
        )
    }

    /// Reads values. The result is received straight into `memory` if their number is expected.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn pull_with(
        &self,
        keys: impl Into<Array<u64>>,
        expect: Expect,
        memory: impl Into<Memory<T>>,
        options: RequestOptions,
    ) -> Result<Pull<T>, Error> {
        let keys = keys.into();
        keys::check_keys(&keys)?;
        let expected_lens = match &expect {
            Expect::Lens(lens) => Some(lens.clone()),
            _ => None,
        };
        let lens = match (&expect, &expected_lens) {
            (Expect::PerKey(len), _) => Lens::Uniform(*len),
            (_, Some(lens)) => {
                let total = lens.iter().map(|&len| len as usize).sum();
                keys::check_lens(keys.len(), Some(lens), total)?
            }
            _ => Lens::Uniform(0),
        };
        let slices = self.cut(&keys, lens)?;
        let request = Request {
            keys,
            lens: expected_lens.clone(),
            values: Array::from(Vec::new()),
            per_key: per_key(lens),
            flags: REQUEST | PULL,
            slices: &slices,
        };
        let known = !matches!(expect, Expect::Unknown);
        self.begin_pull(&request, known, memory.into(), options)
    }

    /// Adds values and reads the sums. The result has as many values for each key as were pushed.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_pull(
        &self,
        keys: impl Into<Array<u64>>,
        values: impl Into<Array<T>>,
    ) -> Result<Pull<T>, Error> {
        self.push_pull_with(keys, values, Vec::new(), RequestOptions::default())
    }

    /// [`push_pull`](Self::push_pull) with options. The result is received straight into `memory`.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_pull_with(
        &self,
        keys: impl Into<Array<u64>>,
        values: impl Into<Array<T>>,
        memory: impl Into<Memory<T>>,
        options: RequestOptions,
    ) -> Result<Pull<T>, Error> {
        let (keys, values) = (keys.into(), values.into());
        let options_lens = options.lens.clone();
        let lens = keys::check(&keys, options_lens.as_deref(), values.len())?;
        let slices = self.cut(&keys, lens)?;
        let request = Request {
            keys,
            lens: options_lens.clone(),
            values,
            per_key: per_key(lens),
            flags: REQUEST | PUSH | PULL,
            slices: &slices,
        };
        self.begin_pull(&request, true, memory.into(), options)
    }

    /// Waits for a push, for the request timeout.
    ///
    /// # Errors
    /// The request failed, or was not answered in time.
    pub fn wait(&self, timestamp: Timestamp) -> Result<(), Error> {
        let limit = self.inner.node.options.request_timeout;
        let waited = self.inner.customer.wait(timestamp, limit);
        if waited.is_err() {
            self.inner.give_up(timestamp);
        }
        waited
    }

    fn cut(&self, keys: &[u64], lens: Lens<'_>) -> Result<Vec<Slice>, Error> {
        let node = &self.inner.node;
        let slicer = self
            .slicer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if self.inner.replayed.is_some() {
            if slicer.is_some() {
                let text =
                    "an elastic job (PS_ELASTIC=1) finds the servers by itself: set no slicer";
                return Err(Error::Options(text.to_owned()));
            }
            // It is cut when it is sent.
            return Ok(vec![Slice {
                server: NodeId(0),
                keys_first: 0,
                keys_end: keys.len(),
                values_first: 0,
                values_end: lens.total(0, keys.len()),
            }]);
        }
        let parts = match slicer {
            Some(slicer) => slicer(keys, node.map()),
            None => parts_by_range(keys, node.map()),
        };
        Ok(slices(parts, keys.len(), lens, node.counts().0)?)
    }

    fn begin_pull(
        &self,
        request: &Request<'_, T>,
        known: bool,
        memory: Memory<T>,
        options: RequestOptions,
    ) -> Result<Pull<T>, Error> {
        let total = request.slices.last().map_or(0, |slice| slice.values_end);
        let total = known.then_some(total);
        if let Some(space) = memory.fixed_len()
            && total != Some(space)
        {
            return Err(KeyError::Memory {
                values: total.unwrap_or(0),
                space,
            }
            .into());
        }
        let destination = Arc::new(Destination::new(request.slices.to_vec(), total, memory));
        let shared = Arc::clone(&destination);
        let timestamp = self.begin(request, options, |timestamp| {
            let mut pulls = self
                .inner
                .pulls
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            pulls.insert(timestamp, shared);
        })?;
        Ok(Pull {
            timestamp,
            destination: Some(destination),
            worker: Arc::clone(&self.inner),
        })
    }

    fn begin(
        &self,
        request: &Request<'_, T>,
        options: RequestOptions,
        prepare: impl FnOnce(Timestamp),
    ) -> Result<Timestamp, Error> {
        let inner = &self.inner;
        let node = &inner.node;
        if node.is_stopped() {
            return Err(Error::Finalized);
        }
        if let (Some(replayed), Some(elastic)) = (&inner.replayed, &node.elastic) {
            return self.begin_elastic(replayed, elastic, request, options, prepare);
        }
        let servers = request.slices.iter().map(|slice| slice.server);
        let timestamp = inner.customer.begin(servers, options.callback, prepare);
        for slice in request.slices {
            let keys = request.keys.slice(slice.keys_first..slice.keys_end);
            let lens = match &request.lens {
                Some(lens) => lens.slice(slice.keys_first..slice.keys_end).bytes(),
                None => Bytes::new(),
            };
            let values = match request.flags & PUSH {
                0 => Bytes::new(),
                _ => request
                    .values
                    .slice(slice.values_first..slice.values_end)
                    .bytes(),
            };
            let header = Header {
                dtype: T::DTYPE as u8,
                app: inner.customer.app(),
                customer: inner.customer.id(),
                cmd: options.cmd,
                priority: options.priority,
                timestamp: timestamp.0,
                map_version: node.map().version(),
                keys: keys.len() as u32,
                lens: request.lens.as_ref().map_or(0, |_| keys.len() as u32),
                per_key: request.per_key,
                value_bytes: values.len() as u64,
                ..Header::new(Kind::Data, request.flags, node.id())
            };
            let parts = [keys.bytes(), lens, values];
            if let Err(error) = node.send(slice.server, header, parts, node.pace()) {
                inner.forget(timestamp);
                inner.customer.fail(timestamp, error.clone());
                return Err(error);
            }
        }
        Ok(timestamp)
    }
}

impl<T: Element> KvWorker<T> {
    fn begin_elastic(
        &self,
        replayed: &Replayed<T>,
        elastic: &Elastic,
        request: &Request<'_, T>,
        options: RequestOptions,
        prepare: impl FnOnce(Timestamp),
    ) -> Result<Timestamp, Error> {
        let inner = &self.inner;
        let node = &inner.node;
        let map = elastic.wait_for_map(node.options.request_timeout)?;
        let push = request.flags & PUSH != 0;
        let (mut asked, mut answering) = (Vec::new(), Vec::new());
        for (range, _) in map.cut(&request.keys) {
            let to = if push { range.head() } else { range.tail() };
            asked.extend(to.filter(|to| !asked.contains(to)));
            answering.extend(range.tail());
        }
        if let Pace::Wait(limit) = node.pace() {
            for connection in asked.iter().filter_map(|to| node.open_connection(*to)) {
                // If it is broken, the request goes elsewhere.
                let waited = connection.wait_for_space(limit);
                if let Err(error @ Error::BackPressure { .. }) = waited {
                    return Err(error);
                }
            }
        }
        // A part may be sent twice, and wait somewhere when the request is completed. It must not be another one then.
        let kept = Arc::new(Kept {
            keys: request.keys.owned(),
            lens: request.lens.as_ref().map(Array::owned),
            values: request.values.owned(),
            per_key: request.per_key,
            flags: request.flags,
            cmd: options.cmd,
            priority: options.priority,
        });
        // An answer completes the request as a whole. All keys may be lost, and then it fails at once.
        if answering.is_empty() {
            answering.push(NodeId(0));
        }
        let mut begun = Ok(Vec::new());
        let timestamp = inner
            .customer
            .begin(answering, options.callback, |timestamp| {
                prepare(timestamp);
                begun = replayed.begin(&map, timestamp.0, &kept);
            });
        match begun {
            Ok(parts) => {
                inner.send_parts(parts);
                // Who is told of the loss later fails the request.
                if let Some(error) = node.scheduler_lost() {
                    inner.fail(timestamp, error);
                }
                Ok(timestamp)
            }
            Err(error) => {
                inner.forget(timestamp);
                inner.customer.fail(timestamp, error.clone());
                Err(error)
            }
        }
    }
}

struct Request<'a, T> {
    keys: Array<u64>,
    lens: Option<Array<u32>>,
    values: Array<T>,
    per_key: u32,
    flags: u8,
    slices: &'a [Slice],
}

fn per_key(lens: Lens<'_>) -> u32 {
    match lens {
        Lens::Uniform(len) => u32::try_from(len).unwrap_or(u32::MAX),
        Lens::Mixed(_) => 0,
    }
}

impl<T: Element> Drop for KvWorker<T> {
    fn drop(&mut self) {
        let customer = &self.inner.customer;
        self.inner
            .node
            .registry
            .remove_customer(Kind::Data, customer.app(), customer.id());
    }
}
