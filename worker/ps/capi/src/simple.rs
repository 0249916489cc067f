//! Simple requests.

use std::ffi::{c_char, c_int, c_void};

use elasticrun_ps::{Refusal, SimpleApp, SimpleData, Timestamp};

use crate::{
    User,
    node::{Node, recipients},
    status::{Failure, guard, guard_or, reference, slice, store, text},
};

/// An app of simple requests.
#[derive(Debug)]
pub struct Simple {
    app: SimpleApp,
}

/// A simple request that must be answered.
#[derive(Debug)]
pub struct SimpleRequest {
    app: SimpleApp,
    data: SimpleData,
}

/// A simple request or an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    head: i32,
    sender: u32,
    timestamp: u64,
    body: *const c_void,
    num_bytes: usize,
}

impl Message {
    fn new(data: &SimpleData) -> Self {
        Self {
            head: data.head,
            sender: data.sender.0,
            timestamp: data.timestamp,
            body: data.body.as_ptr().cast(),
            num_bytes: data.body.len(),
        }
    }
}

type OnRequest =
    unsafe extern "C" fn(request: *mut SimpleRequest, message: *const Message, user: *mut c_void);
type OnResponse = unsafe extern "C" fn(message: *const Message, user: *mut c_void);

/// Creates an app.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_new(
    node: *const Node,
    app: u32,
    on_request: Option<OnRequest>,
    on_response: Option<OnResponse>,
    user: *mut c_void,
    simple: *mut *mut Simple,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let node = unsafe { reference(node, "node")? };
        let request_user = User::new(user);
        let handler: elasticrun_ps::RequestHandler = match on_request {
            None => SimpleApp::echo_nothing(),
            Some(call) => Box::new(move |data: &SimpleData, app: &SimpleApp| {
                let request = Box::new(SimpleRequest {
                    app: app.clone(),
                    data: data.clone(),
                });
                let message = Message::new(data);
                // SAFETY: the program has given the handler for this.
                unsafe { call(Box::into_raw(request), &message, request_user.get()) };
            }),
        };
        let user = User::new(user);
        let note = move |data: &SimpleData| {
            if let Some(call) = on_response {
                // SAFETY: as above.
                unsafe { call(&Message::new(data), user.get()) };
            }
        };
        let app = SimpleApp::new(&node.postoffice, app, handler, Box::new(note))?;
        let made = Box::into_raw(Box::new(Simple { app }));
        // SAFETY: as the caller promises.
        unsafe { store(simple, made, "simple") }
    })
}

/// Frees an app. It serves until the node ends.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_free(simple: *mut Simple) {
    guard_or((), || {
        if !simple.is_null() {
            // SAFETY: `erps_simple_new` has made it, and the caller uses it no more.
            drop(unsafe { Box::from_raw(simple) });
        }
    });
}

/// Sends a request.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_request_to(
    simple: *const Simple,
    head: i32,
    body: *const c_void,
    num_bytes: usize,
    to: u32,
    timestamp: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (simple, body) = unsafe {
            let body = slice(body.cast::<u8>(), num_bytes, "body")?;
            (reference(simple, "simple")?, body)
        };
        let sent = simple.app.request(head, body, recipients(to)?)?;
        // SAFETY: as the caller promises.
        unsafe { store(timestamp, sent.0, "timestamp") }
    })
}

/// Waits for the answers to a request.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_wait(simple: *const Simple, timestamp: u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let simple = unsafe { reference(simple, "simple")? };
        Ok(simple.app.wait(Timestamp(timestamp))?)
    })
}

/// Answers a request, and frees it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_respond(
    request: *mut SimpleRequest,
    body: *const c_void,
    num_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, body) = unsafe {
            let body = slice(body.cast::<u8>(), num_bytes, "body")?;
            (request_of(request)?, body)
        };
        request.app.respond(&request.data, body);
        Ok(())
    })
}

/// Answers a request with an error, and frees it.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn erps_simple_refuse(
    request: *mut SimpleRequest,
    reason: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (request, reason) = unsafe { (request_of(request)?, text(reason)) };
        request.app.refuse(&request.data, &Refusal::Handler(reason));
        Ok(())
    })
}

/// # Safety
/// A handler got it, and it is not answered.
unsafe fn request_of(request: *mut SimpleRequest) -> Result<Box<SimpleRequest>, Failure> {
    match request.is_null() {
        true => Err(Failure::invalid("request is NULL")),
        // SAFETY: as the caller promises.
        false => Ok(unsafe { Box::from_raw(request) }),
    }
}
