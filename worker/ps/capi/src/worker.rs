//! The worker's side.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ffi::{c_char, c_int, c_void},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use elasticrun_ps::{
    Array, Error, Expect, NodeId, Parts, RequestOptions, Timestamp,
    dynamic::{self, AnyPull, AnyPulled, AnyWorker, Elements, MutElements},
    parts_by_range,
};

use crate::{
    Owner, Release, User, dtype,
    node::Node,
    status::{Failure, OK, c_string, code, guard, guard_or, reference, slice, store},
};

/// Is called when a request is completed.
type Callback =
    Option<unsafe extern "C" fn(status: c_int, error: *const c_char, user: *mut c_void)>;

/// Keys `first..end` for a server.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    server: u32,
    first: usize,
    end: usize,
}

/// The options of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    cmd: i32,
    priority: i32,
    callback: Callback,
    user: *mut c_void,
    release: Release,
    owner: *mut c_void,
    parts: *const Part,
    num_parts: usize,
}

/// Pushes and pulls the values of an app.
#[derive(Debug)]
pub struct Worker {
    worker: Box<dyn AnyWorker>,
    request_timeout: Duration,
    /// Pulls whose values nobody has taken.
    pulls: Mutex<BTreeMap<u64, Box<dyn AnyPull>>>,
}

/// The values of a pull.
#[derive(Debug)]
pub struct Pulled(AnyPulled);

thread_local! {
    /// How the request that this thread makes is cut.
    static PARTS: RefCell<Option<Parts>> = const { RefCell::new(None) };
}

impl Worker {
    fn pulls(&self) -> MutexGuard<'_, BTreeMap<u64, Box<dyn AnyPull>>> {
        self.pulls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a pull until it is completed, as its values would be forgotten otherwise.
    fn keep(&self, pull: Box<dyn AnyPull>) -> Timestamp {
        let timestamp = pull.timestamp();
        self.pulls().insert(timestamp.0, pull);
        timestamp
    }

    fn wait(&self, timestamp: Timestamp, limit: Duration) -> Result<(), Error> {
        let waited = self.worker.customer().wait(timestamp, limit);
        if waited.is_err() {
            self.pulls().remove(&timestamp.0);
        }
        waited
    }
}

/// A request as the program describes it.
struct Request {
    keys: Array<u64>,
    lens: Option<Array<u32>>,
    options: RequestOptions,
    owner: Arc<Owner>,
    parts: Option<Parts>,
}

impl Request {
    /// # Safety
    /// As the header says.
    unsafe fn new(
        keys: *const u64,
        num_keys: usize,
        lens: *const u32,
        options: *const Options,
    ) -> Result<Self, Failure> {
        // SAFETY: as the caller promises.
        let given = unsafe { options.as_ref() };
        let owner = given.map_or(Owner::new(None, std::ptr::null_mut()), |given| {
            Owner::new(given.release, given.owner)
        });
        let owner = Arc::new(owner);
        // SAFETY: as the caller promises; the array is not null, or empty.
        let keys = unsafe {
            slice(keys, num_keys, "keys")?;
            foreign(keys, num_keys, &owner)
        };
        let lens = match lens.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { foreign(lens, num_keys, &owner) }),
        };
        let mut request = Self {
            keys,
            lens,
            owner,
            options: RequestOptions::default(),
            parts: None,
        };
        if let Some(given) = given {
            request.options.cmd = given.cmd;
            request.options.priority = given.priority;
            let user = User::new(given.user);
            request.options.callback = given.callback.map(|call| callback(call, user));
            // SAFETY: as the caller promises.
            let parts = unsafe { slice(given.parts, given.num_parts, "parts")? };
            let parts = parts
                .iter()
                .map(|part| (NodeId::server(part.server), part.first..part.end));
            request.parts = (given.num_parts > 0).then(|| parts.collect());
        }
        Ok(request)
    }
}

/// # Safety
/// So many elements stay at the address until the owner is dropped.
unsafe fn foreign<T: Send + Sync + 'static>(
    first: *const T,
    len: usize,
    owner: &Arc<Owner>,
) -> Array<T> {
    match len {
        0 => Vec::new().into(),
        // SAFETY: as the caller promises.
        len => unsafe { Array::from_foreign(first, len, Arc::clone(owner)) },
    }
}

fn callback(
    call: unsafe extern "C" fn(c_int, *const c_char, *mut c_void),
    user: User,
) -> elasticrun_ps::Callback {
    Box::new(move |result| {
        let (status, text) = match &result {
            Ok(()) => (OK, c_string("")),
            Err(error) => (code(error), c_string(&error.to_string())),
        };
        // SAFETY: the program has given the two for this.
        unsafe { call(status, text.as_ptr(), user.get()) };
    })
}

/// Runs a request that is cut by these parts.
fn cut_by<R>(parts: Option<Parts>, run: impl FnOnce() -> R) -> R {
    PARTS.set(parts);
    let result = run();
    PARTS.set(None);
    result
}

/// Creates a worker.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_worker_new(
    node: *const Node,
    value_type: i32,
    app: u32,
    customer: u32,
    worker: *mut *mut Worker,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let made = dynamic::new_worker(&node.postoffice, dtype(value_type)?, app, customer)?;
        made.set_slicer(Arc::new(|keys, map| {
            PARTS.take().unwrap_or_else(|| parts_by_range(keys, map))
        }));
        let made = Box::new(Worker {
            worker: made,
            request_timeout: node.postoffice.options().request_timeout,
            pulls: Mutex::default(),
        });
        // SAFETY: as the caller promises.
        unsafe { store(worker, Box::into_raw(made), "worker") }
    })
}

/// Frees a worker.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_worker_free(worker: *mut Worker) {
    guard_or((), || {
        if !worker.is_null() {
            // SAFETY: `erps_worker_new` has made it, and the caller uses it no more.
            drop(unsafe { Box::from_raw(worker) });
        }
    });
}

/// Adds values.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_push(
    worker: *const Worker,
    keys: *const u64,
    num_keys: usize,
    values: *const c_void,
    num_values: usize,
    lens: *const u32,
    options: *const Options,
    timestamp: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, worker) = unsafe {
            let request = Request::new(keys, num_keys, lens, options)?;
            slice(values.cast::<u8>(), num_values, "values")?;
            (request, reference(worker, "worker")?)
        };
        let mut given = request.options;
        given.lens = request.lens;
        // SAFETY: as the caller promises, the values are of the type of the worker.
        let pushed = cut_by(request.parts, || unsafe {
            let values = Elements::new(values.cast(), num_values, request.owner);
            worker.worker.push(request.keys, values, given)
        })?;
        // SAFETY: as the caller promises.
        unsafe { store(timestamp, pushed.0, "timestamp") }
    })
}

/// Reads values.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_pull(
    worker: *const Worker,
    keys: *const u64,
    num_keys: usize,
    values: *mut c_void,
    num_values: usize,
    lens: *const u32,
    options: *const Options,
    timestamp: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, worker) = unsafe {
            let request = Request::new(keys, num_keys, lens, options)?;
            (request, reference(worker, "worker")?)
        };
        let expect = match (values.is_null(), request.lens) {
            (true, _) => Expect::Unknown,
            (false, Some(lens)) => Expect::Lens(lens),
            (false, None) => {
                let per_key = num_values.checked_div(num_keys).unwrap_or(0);
                Expect::PerKey(per_key)
            }
        };
        // SAFETY: as the caller promises, the values are of the type of the worker.
        let pull = cut_by(request.parts, || unsafe {
            let memory = (!values.is_null())
                .then(|| MutElements::new(values.cast(), num_values, request.owner));
            worker
                .worker
                .pull(request.keys, expect, memory, request.options)
        })?;
        // SAFETY: as the caller promises.
        unsafe { store(timestamp, worker.keep(pull).0, "timestamp") }
    })
}

/// Adds values and reads the sums.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_push_pull(
    worker: *const Worker,
    keys: *const u64,
    num_keys: usize,
    values: *const c_void,
    num_values: usize,
    lens: *const u32,
    sums: *mut c_void,
    options: *const Options,
    timestamp: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, worker) = unsafe {
            let request = Request::new(keys, num_keys, lens, options)?;
            slice(values.cast::<u8>(), num_values, "values")?;
            slice(sums.cast::<u8>(), num_values, "sums")?;
            (request, reference(worker, "worker")?)
        };
        let mut given = request.options;
        given.lens = request.lens;
        // SAFETY: as the caller promises, the values are of the type of the worker.
        let pull = cut_by(request.parts, || unsafe {
            let values = Elements::new(values.cast(), num_values, Arc::clone(&request.owner));
            let sums = MutElements::new(sums.cast(), num_values, request.owner);
            worker
                .worker
                .push_pull(request.keys, values, Some(sums), given)
        })?;
        // SAFETY: as the caller promises.
        unsafe { store(timestamp, worker.keep(pull).0, "timestamp") }
    })
}

/// Waits for a request.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_wait(worker: *const Worker, timestamp: u64, seconds: f64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let worker = unsafe { reference(worker, "worker")? };
        let limit = match seconds < 0.0 {
            true => worker.request_timeout,
            false => Duration::try_from_secs_f64(seconds)
                .map_err(|error| Failure::invalid(format!("{seconds} s: {error}")))?,
        };
        Ok(worker.wait(Timestamp(timestamp), limit)?)
    })
}

/// Whether a request is completed.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_is_done(worker: *const Worker, timestamp: u64) -> c_int {
    guard_or(0, || {
        // SAFETY: as the caller promises.
        let worker = unsafe { worker.as_ref() };
        let timestamp = Timestamp(timestamp);
        c_int::from(worker.is_some_and(|worker| worker.worker.customer().is_done(timestamp)))
    })
}

/// Takes the result of a pull.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_take(
    worker: *const Worker,
    timestamp: u64,
    pulled: *mut *mut Pulled,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let worker = unsafe { reference(worker, "worker")? };
        if !worker.worker.customer().is_done(Timestamp(timestamp)) {
            return Err(Failure::invalid(format!(
                "request {timestamp} is not completed"
            )));
        }
        let pull = worker.pulls().remove(&timestamp);
        let pull = pull.ok_or_else(|| {
            Failure::invalid(format!(
                "request {timestamp} has no values that were not taken"
            ))
        })?;
        let taken = Box::new(Pulled(pull.wait_for(Duration::ZERO)?));
        match pulled.is_null() {
            true => Ok(()),
            // SAFETY: as the caller promises.
            false => unsafe { store(pulled, Box::into_raw(taken), "pulled") },
        }
    })
}

/// The values and lens of a result.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_pulled_get(
    pulled: *const Pulled,
    values: *mut *const c_void,
    num_bytes: *mut usize,
    lens: *mut *const u32,
    num_lens: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe {
            let Pulled(pulled) = reference(pulled, "pulled")?;
            store(values, pulled.values.as_ptr().cast(), "values")?;
            store(num_bytes, pulled.values.len(), "num_bytes")?;
            let found = pulled.lens.as_deref().unwrap_or_default();
            store(lens, found.as_ptr(), "lens")?;
            store(num_lens, found.len(), "num_lens")
        }
    })
}

/// Frees a result.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_pulled_free(pulled: *mut Pulled) {
    guard_or((), || {
        if !pulled.is_null() {
            // SAFETY: `erps_take` has made it, and the caller uses it no more.
            drop(unsafe { Box::from_raw(pulled) });
        }
    });
}
