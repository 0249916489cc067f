//! The format of a commit of a Python state: a head that Python parses, and buffers.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | number of buffers, little endian, and so on |
//! | 8 | length of the head |
//! | 8 each | lengths of the buffers |
//! | | head, then each buffer, each from a multiple of 64 bytes on |
//!
//! Without head and buffers a payload has no bytes: the process then keeps the state in its own memory.

use std::{
    io::{self, Write},
    sync::Mutex,
};

use elasticrun_worker::{State, state};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyBytes, PyList},
};

use crate::dtype::Memory;

/// `PyBUF_WRITE` of the C API.
const WRITE: i32 = 0x200;

/// Readers use buffers in place, and some libraries need this alignment.
const ALIGN: usize = 64;

/// A payload to write. Python keeps the buffers alive meanwhile.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) head: Py<PyBytes>,
    pub(crate) buffers: Vec<Memory>,
}

impl Payload {
    /// Creates a payload from a head and the (address, bytes) of each buffer.
    pub(crate) fn new(head: Py<PyBytes>, buffers: Vec<(usize, usize)>) -> PyResult<Self> {
        let buffers = buffers
            .into_iter()
            .map(Memory::from_address::<u8>)
            .collect::<PyResult<_>>()?;
        Ok(Self { head, buffers })
    }

    /// Writes the payload. `head` are the bytes of `self.head`, which do not move or change; reading them needs no GIL.
    pub(crate) fn write(&self, head: &[u8], out: &mut dyn Write) -> io::Result<()> {
        if head.is_empty() && self.buffers.is_empty() {
            return Ok(());
        }
        let mut pos = 0;
        let mut put = |bytes: &[u8], pos: &mut usize| {
            *pos += bytes.len();
            out.write_all(bytes)
        };
        put(&(self.buffers.len() as u64).to_le_bytes(), &mut pos)?;
        put(&(head.len() as u64).to_le_bytes(), &mut pos)?;
        for buffer in &self.buffers {
            put(&(buffer.len() as u64).to_le_bytes(), &mut pos)?;
        }
        put(&[0; ALIGN][..padding(pos)], &mut pos)?;
        put(head, &mut pos)?;
        for buffer in &self.buffers {
            put(&[0; ALIGN][..padding(pos)], &mut pos)?;
            // SAFETY: Python keeps the buffer alive and does not change it during the call.
            put(unsafe { buffer.as_ref::<u8>() }, &mut pos)?;
        }
        Ok(())
    }
}

/// Number of zeros from `pos` to the next multiple of [`ALIGN`].
fn padding(pos: usize) -> usize {
    pos.next_multiple_of(ALIGN) - pos
}

/// Parses a payload into its head and buffers.
pub(crate) fn parts<'a>(from: &mut &'a [u8]) -> Result<(&'a [u8], Vec<&'a [u8]>), state::Error> {
    if from.is_empty() {
        return Ok((&[], Vec::new()));
    }
    let len = from.len();
    let pos = |from: &&[u8]| len - from.len();
    let number = |from: &mut &'a [u8]| {
        let bytes = state::take(from, 8)?;
        Ok::<_, state::Error>(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    };
    let count = number(from)?;
    let head = number(from)?;
    // Each length takes eight bytes, so an impossible count fails before any memory is allocated for it.
    let lens = (0..count)
        .map_while(|_| Some(number(from)).filter(Result::is_ok))
        .collect::<Result<Vec<_>, _>>()?;
    if lens.len() as u64 != count {
        number(from)?;
    }
    state::take(from, padding(pos(from)) as u64)?;
    let head = state::take(from, head)?;
    let mut buffers = Vec::with_capacity(lens.len());
    for len in lens {
        state::take(from, padding(pos(from)) as u64)?;
        buffers.push(state::take(from, len)?);
    }
    Ok((head, buffers))
}

/// Calls `read(head: bytes, buffers: list[memoryview])` with the contents of a commit, and releases the views afterwards.
pub(crate) fn call_with_buffers(
    py: Python<'_>,
    read: &Bound<'_, PyAny>,
    bytes: &[u8],
) -> PyResult<()> {
    with_views(py, bytes, |head, buffers| {
        read.call1((head, buffers)).map(drop)
    })
}

/// Calls `read` with the head of a commit and views of its buffers, and releases the views afterwards.
fn with_views<'py, R>(
    py: Python<'py>,
    bytes: &[u8],
    read: impl FnOnce(Bound<'py, PyBytes>, Bound<'py, PyList>) -> PyResult<R>,
) -> PyResult<R> {
    let mut from = bytes;
    let (head, buffers) = parts(&mut from).map_err(|error| {
        crate::error::exception(py, "StateError", format!("the committed state: {error}"))
    })?;
    let views = buffers
        .iter()
        .map(|buffer| view(py, buffer))
        .collect::<PyResult<Vec<_>>>()?;
    let list = PyList::new(py, &views)?;
    let result = read(PyBytes::new(py, head), list);
    for view in &views {
        // An array that still uses the view must not outlive this call.
        let released = view.call_method0("release");
        if result.is_ok() {
            released.map_err(|error| {
                let text = "restore() kept a view of committed memory: copy what is to stay";
                let state = crate::error::exception(py, "StateError", text);
                state.set_cause(py, Some(error));
                state
            })?;
        }
    }
    result
}

fn view<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let pointer = bytes.as_ptr().cast_mut().cast();
    // SAFETY: the memory outlives the view, which [`with_views`] releases. `read` must not write through it; PyBUF_READ
    // would keep frameworks from making tensors without a copy. A library that uses the memory without a reference to the
    // view (such as torch.frombuffer) escapes the release. A decoder that uses such a library must leave no reference to
    // the memory, as `StateTensor.release` in `elasticrun.torch.elastic.tensors` ensures.
    unsafe {
        let view = ffi::PyMemoryView_FromMemory(pointer, bytes.len() as isize, WRITE);
        Bound::from_owned_ptr_or_err(py, view)
    }
}

/// A Python state as a [`State`] of the SDK, which calls it without the GIL.
#[derive(Debug)]
pub(crate) struct Adapter<'a> {
    /// `() -> (head, buffers)`.
    pub(crate) save: &'a Py<PyAny>,
    /// `(head, buffers) -> None`.
    pub(crate) restore: &'a Py<PyAny>,
    /// `((head, buffers) or None, answers of all ranks or None) -> bytes or None`.
    pub(crate) compare: Option<&'a Py<PyAny>>,
    /// The exception that Python raised.
    pub(crate) raised: Mutex<Option<PyErr>>,
}

impl Adapter<'_> {
    /// Stores the exception and returns its text.
    fn keep(&self, error: PyErr) -> String {
        let text = error.to_string();
        if let Ok(mut raised) = self.raised.lock() {
            *raised = Some(error);
        }
        text
    }
}

impl State for Adapter<'_> {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        // `saved` stays alive until its buffers are copied.
        let saved = Python::attach(|py| {
            let saved = self.save.call0(py)?;
            let (head, buffers) = saved.extract::<(Bound<'_, PyBytes>, Vec<(usize, usize)>)>(py)?;
            Ok((Payload::new(head.unbind(), buffers)?, saved))
        });
        let (payload, saved) = saved.map_err(|error: PyErr| io::Error::other(self.keep(error)))?;
        let written = write(&payload, out);
        Python::attach(|_| drop((payload, saved)));
        written
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        let bytes = std::mem::take(from);
        Python::attach(|py| call_with_buffers(py, self.restore.bind(py), bytes))
            .map_err(|error| state::Error::Invalid(self.keep(error)))
    }

    fn compare(
        &mut self,
        local: Option<&[u8]>,
        received: Option<&[Vec<u8>]>,
    ) -> Result<Option<Vec<u8>>, state::Error> {
        let Some(compare) = self.compare else {
            return Ok(None);
        };
        let answer = Python::attach(|py| {
            let compare = compare.bind(py);
            let received = received
                .map(|received| {
                    PyList::new(py, received.iter().map(|words| PyBytes::new(py, words)))
                })
                .transpose()?;
            let answer = match local {
                Some(local) => with_views(py, local, |head, buffers| {
                    compare.call1(((head, buffers), received))
                })?,
                None => compare.call1((py.None(), received))?,
            };
            answer.extract::<Option<Vec<u8>>>()
        });
        answer.map_err(|error: PyErr| state::Error::Invalid(self.keep(error)))
    }
}

/// Writes a payload without the GIL.
pub(crate) fn write(payload: &Payload, out: &mut dyn Write) -> io::Result<()> {
    let (pointer, len) = Python::attach(|py| {
        let head = payload.head.bind(py).as_bytes();
        (head.as_ptr(), head.len())
    });
    // SAFETY: bytes do not move or change while the payload holds them.
    let head = unsafe { std::slice::from_raw_parts(pointer, len) };
    payload.write(head, out)
}
