//! The server's side.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::Arc,
};

use elasticrun_ps::{
    Array, DType, Expected, Lens, Refusal, RequestMeta,
    dynamic::{self, AnyHandler, AnyPairs, AnyServer, Elements},
};

use crate::{
    Owner, Release, User, dtype,
    node::Node,
    status::{Failure, guard, guard_or, reference, slice, store, text},
};

/// An app.
#[derive(Debug)]
pub struct Server {
    server: Box<dyn AnyServer>,
}

/// A request that must be answered.
#[derive(Debug)]
pub struct Request {
    meta: RequestMeta,
    server: Arc<dyn AnyServer>,
    dtype: DType,
    /// Whether the worker knows the lens.
    knows_lens: bool,
}

/// What a request says beside keys and values.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    cmd: i32,
    push: i32,
    pull: i32,
    sender: u32,
    customer: u32,
    timestamp: u64,
}

/// Keys and values of a request.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    keys: *const u64,
    num_keys: usize,
    values: *const c_void,
    num_values: usize,
    lens: *const u32,
    expected: *const u32,
    expected_per_key: i64,
}

type Handle = unsafe extern "C" fn(
    request: *mut Request,
    meta: *const Meta,
    pairs: *const Pairs,
    user: *mut c_void,
);

struct Handler {
    call: Handle,
    user: User,
    dtype: DType,
}

impl AnyHandler for Handler {
    fn handle(&self, meta: &RequestMeta, pairs: AnyPairs<'_>, server: &dyn AnyServer) {
        let knows_lens = !matches!(pairs.expected, Expected::Unknown);
        let request = Box::new(Request {
            meta: meta.clone(),
            server: server.share(),
            dtype: self.dtype,
            knows_lens,
        });
        let mixed = |lens: Lens<'_>| match lens {
            Lens::Uniform(_) => std::ptr::null(),
            Lens::Mixed(lens) => lens.as_ptr(),
        };
        let (expected, expected_per_key) = match pairs.expected {
            Expected::Unknown => (std::ptr::null(), -1),
            Expected::Known(Lens::Uniform(per_key)) => (std::ptr::null(), per_key as i64),
            Expected::Known(lens) => (mixed(lens), -1),
        };
        let given = Pairs {
            keys: pairs.keys.as_ptr(),
            num_keys: pairs.keys.len(),
            values: pairs.values.as_ptr().cast(),
            num_values: pairs.values.len() / dynamic::size_of(self.dtype),
            lens: mixed(pairs.lens),
            expected,
            expected_per_key,
        };
        let meta = Meta {
            cmd: meta.cmd(),
            push: i32::from(meta.is_push()),
            pull: i32::from(meta.is_pull()),
            sender: meta.sender().0,
            customer: meta.customer(),
            timestamp: meta.timestamp(),
        };
        // SAFETY: the program has given the handler for this.
        unsafe { (self.call)(Box::into_raw(request), &meta, &given, self.user.get()) };
    }
}

/// Creates an app.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_server_new(
    node: *const Node,
    value_type: i32,
    app: u32,
    handler: Option<Handle>,
    user: *mut c_void,
    server: *mut *mut Server,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let dtype = dtype(value_type)?;
        let made = match handler {
            None => dynamic::new_summing_server(&node.postoffice, dtype, app)?,
            Some(call) => {
                let user = User::new(user);
                let handler = Handler { call, user, dtype };
                dynamic::new_server(&node.postoffice, dtype, app, handler)?
            }
        };
        let made = Box::into_raw(Box::new(Server { server: made }));
        // SAFETY: as the caller promises.
        unsafe { store(server, made, "server") }
    })
}

/// Takes an app away, and frees it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_server_free(server: *mut Server) {
    guard_or((), || {
        if !server.is_null() {
            // SAFETY: `erps_server_new` has made it, and the caller uses it no more.
            let server = unsafe { Box::from_raw(server) };
            server.server.remove();
        }
    });
}

/// Answers a request, and frees it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_respond(
    request: *mut Request,
    values: *const c_void,
    num_values: usize,
    lens: *const u32,
    num_lens: usize,
    release: Release,
    owner: *mut c_void,
) -> c_int {
    guard(|| {
        let owner = Owner::new(release, owner);
        // SAFETY: as the caller promises.
        let request = unsafe { request_of(request)? };
        // SAFETY: as the caller promises.
        let answer = unsafe { answer(&request, values, num_values, lens, num_lens, owner) };
        let (values, lens) = answer.inspect_err(|failure| {
            let refusal = Refusal::Handler(failure.to_string());
            request.server.refuse(&request.meta, &refusal);
        })?;
        // SAFETY: as the caller promises, the values are of the type of the server.
        unsafe { request.server.respond(&request.meta, values, lens) };
        Ok(())
    })
}

/// The values and lens of an answer.
///
/// # Safety
/// As the header says of `erps_respond`.
unsafe fn answer(
    request: &Request,
    values: *const c_void,
    num_values: usize,
    lens: *const u32,
    num_lens: usize,
    owner: Owner,
) -> Result<(Elements, Option<Array<u32>>), Failure> {
    // SAFETY: as the caller promises.
    let (bytes, lens) = unsafe {
        let nbytes = num_values * dynamic::size_of(request.dtype);
        let bytes = slice(values.cast::<u8>(), nbytes, "values")?;
        (bytes, slice(lens, num_lens, "lens")?)
    };
    let lens = (!lens.is_empty() && !request.knows_lens).then(|| lens.into());
    if owner.release.is_some() {
        // SAFETY: as the caller promises, they stay there until they are released.
        let values = unsafe { Elements::new(values.cast(), num_values, owner) };
        return Ok((values, lens));
    }
    // Aligned for every type.
    let mut copy = vec![0u64; bytes.len().div_ceil(8)];
    let first = copy.as_mut_ptr().cast::<u8>();
    // SAFETY: the copy has space for so many bytes, and they do not move with it.
    let values = unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len());
        Elements::new(first, num_values, copy)
    };
    Ok((values, lens))
}

/// Answers a request with an error, and frees it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_refuse(request: *mut Request, reason: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, reason) = unsafe { (request_of(request)?, text(reason)) };
        request
            .server
            .refuse(&request.meta, &Refusal::Handler(reason));
        Ok(())
    })
}

/// # Safety
/// A handler got it, and it is not answered.
unsafe fn request_of(request: *mut Request) -> Result<Box<Request>, Failure> {
    match request.is_null() {
        true => Err(Failure::invalid("request is NULL")),
        // SAFETY: as the caller promises.
        false => Ok(unsafe { Box::from_raw(request) }),
    }
}
