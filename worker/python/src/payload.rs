//! A commit of a Python state: a head that Python understands, and buffers.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | number of buffers, little endian, and so on |
//! | 8 | length of the head |
//! | 8 each | lengths of the buffers |
//! | | head, then each buffer, each from a multiple of 64 bytes on |
//!
//! Without a head and buffers it has no bytes: then the process keeps the state by itself.

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

/// Tensors are read where they lie, and some libraries want them aligned.
const ALIGN: usize = 64;

/// What is written: Python keeps the buffers alive meanwhile.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) head: Py<PyBytes>,
    pub(crate) buffers: Vec<Memory>,
}

impl Payload {
    /// From what Python gives: the head, and (address, bytes) of each buffer.
    pub(crate) fn new(head: Py<PyBytes>, buffers: Vec<(usize, usize)>) -> PyResult<Self> {
        let buffers = buffers
            .into_iter()
            .map(Memory::of::<u8>)
            .collect::<PyResult<_>>()?;
        Ok(Self { head, buffers })
    }

    /// Writes it. The bytes of the head do not move or change, so no GIL is needed to read them.
    pub(crate) fn write(&self, head: &[u8], out: &mut dyn Write) -> io::Result<()> {
        if head.is_empty() && self.buffers.is_empty() {
            return Ok(());
        }
        let mut at = 0;
        let mut put = |bytes: &[u8], at: &mut usize| {
            *at += bytes.len();
            out.write_all(bytes)
        };
        put(&(self.buffers.len() as u64).to_le_bytes(), &mut at)?;
        put(&(head.len() as u64).to_le_bytes(), &mut at)?;
        for buffer in &self.buffers {
            put(&(buffer.len() as u64).to_le_bytes(), &mut at)?;
        }
        put(&[0; ALIGN][..padding(at)], &mut at)?;
        put(head, &mut at)?;
        for buffer in &self.buffers {
            put(&[0; ALIGN][..padding(at)], &mut at)?;
            // SAFETY: Python keeps the buffer alive and leaves it alone during the call.
            put(unsafe { buffer.as_ref::<u8>() }, &mut at)?;
        }
        Ok(())
    }
}

/// Zeros from `at` to the next multiple of [`ALIGN`].
fn padding(at: usize) -> usize {
    at.next_multiple_of(ALIGN) - at
}

/// The parts of a payload.
pub(crate) fn parts<'a>(from: &mut &'a [u8]) -> Result<(&'a [u8], Vec<&'a [u8]>), state::Error> {
    if from.is_empty() {
        return Ok((&[], Vec::new()));
    }
    let len = from.len();
    let at = |from: &&[u8]| len - from.len();
    let number = |from: &mut &'a [u8]| {
        let bytes = state::take(from, 8)?;
        Ok::<_, state::Error>(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
    };
    let count = number(from)?;
    let head = number(from)?;
    // Each length takes eight bytes, so a count that cannot be is found before memory is asked for.
    let lens = (0..count)
        .map_while(|_| Some(number(from)).filter(Result::is_ok))
        .collect::<Result<Vec<_>, _>>()?;
    if lens.len() as u64 != count {
        number(from)?;
    }
    state::take(from, padding(at(from)) as u64)?;
    let head = state::take(from, head)?;
    let mut buffers = Vec::with_capacity(lens.len());
    for len in lens {
        state::take(from, padding(at(from)) as u64)?;
        buffers.push(state::take(from, len)?);
    }
    Ok((head, buffers))
}

/// Calls `read(head: bytes, buffers: list[memoryview])`; the views are released afterwards.
pub(crate) fn give(py: Python<'_>, read: &Bound<'_, PyAny>, bytes: &[u8]) -> PyResult<()> {
    lend(py, bytes, |head, buffers| {
        read.call1((head, buffers)).map(drop)
    })
}

/// Calls `read` with the head of a commit and views of its buffers, which are released afterwards.
fn lend<'py, R>(
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
        // An array that still looks at it must not outlive this call.
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
    // SAFETY: the memory outlives the view, which is released by [`give`]; it is not written through it,
    // which `read` promises (PyBUF_READ would keep frameworks from making tensors without a copy). A library that looks at
    // the memory without a hold on the view (torch.frombuffer has none) escapes the release: whoever decodes with it sees
    // to it that nothing of that is left, as `elasticrun.torch.elastic.borrowed` does.
    unsafe {
        let view = ffi::PyMemoryView_FromMemory(pointer, bytes.len() as isize, WRITE);
        Bound::from_owned_ptr_or_err(py, view)
    }
}

/// A Python state to the SDK, which calls it without the GIL.
#[derive(Debug)]
pub(crate) struct Adapter<'a> {
    /// `() -> (head, buffers)`.
    pub(crate) save: &'a Py<PyAny>,
    /// `(head, buffers) -> None`.
    pub(crate) restore: &'a Py<PyAny>,
    /// `((head, buffers) or None, what all told or None) -> bytes or None`.
    pub(crate) compare: Option<&'a Py<PyAny>>,
    /// What Python raised.
    pub(crate) raised: Mutex<Option<PyErr>>,
}

impl Adapter<'_> {
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
        // The object that Python gives stays alive until its buffers are copied.
        let given = Python::attach(|py| {
            let given = self.save.call0(py)?;
            let (head, buffers) = given.extract::<(Bound<'_, PyBytes>, Vec<(usize, usize)>)>(py)?;
            Ok((Payload::new(head.unbind(), buffers)?, given))
        });
        let (payload, given) = given.map_err(|error: PyErr| io::Error::other(self.keep(error)))?;
        let written = write(&payload, out);
        Python::attach(|_| drop((payload, given)));
        written
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        let bytes = std::mem::take(from);
        Python::attach(|py| give(py, self.restore.bind(py), bytes))
            .map_err(|error| state::Error::Invalid(self.keep(error)))
    }

    fn compare(
        &mut self,
        own: Option<&[u8]>,
        heard: Option<&[Vec<u8>]>,
    ) -> Result<Option<Vec<u8>>, state::Error> {
        let Some(compare) = self.compare else {
            return Ok(None);
        };
        let told = Python::attach(|py| {
            let compare = compare.bind(py);
            let heard = heard
                .map(|heard| PyList::new(py, heard.iter().map(|words| PyBytes::new(py, words))))
                .transpose()?;
            let told = match own {
                Some(own) => lend(py, own, |head, buffers| {
                    compare.call1(((head, buffers), heard))
                })?,
                None => compare.call1((py.None(), heard))?,
            };
            told.extract::<Option<Vec<u8>>>()
        });
        told.map_err(|error: PyErr| state::Error::Invalid(self.keep(error)))
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
