//! The collectives of a [`CollectiveQueue`], on addresses that Python passes.
//!
//! Each call checks its arguments, submits a task and returns its [`Work`]. A buffer is an address and a number of bytes. Each
//! call compares the sizes of all its buffers, so that no operation reads or writes beyond them, whatever element type the
//! caller names. SAFETY of all operations rests on that and on P3: `keep` holds the memory, and callers do not touch it until
//! the work is done, as the Python side documents.

use std::time::Duration;

use elasticrun_worker::{Group, GroupError, Op};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

use crate::{
    collective_queue::{CollectiveQueue, Scratch, Task},
    dtype::{self, Memory, Scale, with_element},
    work::{Outcome, Work},
};

#[pymethods]
impl CollectiveQueue {
    /// Maximum time in seconds that an operation waits for other ranks. None, the default, waits until they come or the round
    /// is over.
    #[pyo3(signature = (seconds))]
    fn set_timeout(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let timeout = match seconds {
            None => None,
            Some(seconds) => Some(Duration::try_from_secs_f64(seconds).map_err(|error| {
                PyValueError::new_err(format!("timeout of {seconds} s: {error}"))
            })?),
        };
        self.borrow(py, |group| group.set_timeout(timeout))
            .map(drop)
    }

    fn __repr__(&self) -> String {
        format!("<CollectiveQueue of rank {} of {}>", self.rank, self.size)
    }

    /// Combines the contents of the buffers (address, bytes) in place. Several buffers are one operation.
    #[pyo3(signature = (buffers, dtype, op, keep = None, name = None, prescale = 1.0, postscale = 1.0, tag = 0))]
    #[expect(clippy::too_many_arguments, reason = "a call of Python by keyword")]
    fn allreduce(
        &self,
        buffers: Vec<(usize, usize)>,
        dtype: &str,
        op: &str,
        keep: Option<Py<PyAny>>,
        name: Option<String>,
        prescale: f64,
        postscale: f64,
        tag: u32,
    ) -> PyResult<Work> {
        let op = dtype::op(op)?;
        let task: Task = with_element!(dtype::dtype(dtype)?, T => {
            let buffers = buffers
                .into_iter()
                .map(Memory::from_address::<T>)
                .collect::<PyResult<Vec<_>>>()?;
            Box::new(move |group, scratch| {
                group.expect_shape(tag);
                allreduce::<T>(group, scratch, &buffers, op, (prescale, postscale))
            })
        });
        Ok(self.submit(task, keep, name))
    }

    /// Copies the bytes at `address` of rank `root` to all ranks.
    #[pyo3(signature = (address, nbytes, root, keep = None, name = None))]
    fn broadcast(
        &self,
        address: usize,
        nbytes: usize,
        root: u32,
        keep: Option<Py<PyAny>>,
        name: Option<String>,
    ) -> PyResult<Work> {
        let data = Memory::from_address::<u8>((address, nbytes))?;
        let task: Task = Box::new(move |group, _| {
            // SAFETY: see the module.
            group.broadcast(unsafe { data.as_mut::<u8>() }, root)?;
            Ok(Outcome::Written)
        });
        Ok(self.submit(task, keep, name))
    }

    /// Copies the `input` (address, bytes) of each rank to the `output` of all, in order of rank. All inputs have the same size.
    #[pyo3(signature = (input, output, keep = None, name = None, tag = 0))]
    fn allgather(
        &self,
        input: (usize, usize),
        output: (usize, usize),
        keep: Option<Py<PyAny>>,
        name: Option<String>,
        tag: u32,
    ) -> PyResult<Work> {
        let input = Memory::from_address::<u8>(input)?;
        let output = Memory::from_address::<u8>(output)?;
        self.check_blocks("allgather", "output", output, input)?;
        let task: Task = Box::new(move |group, _| {
            // SAFETY: see the module.
            let (input, output) = unsafe { (input.as_ref::<u8>(), output.as_mut::<u8>()) };
            group.expect_shape(tag);
            group.allgather(input, output)?;
            Ok(Outcome::Written)
        });
        Ok(self.submit(task, keep, name))
    }

    /// Combines the `input` (address, bytes) of all ranks; each gets its block of the result. Elements are multiplied by
    /// `prescale` first, in the scratch memory.
    #[pyo3(signature = (input, output, dtype, op, keep = None, name = None, prescale = 1.0, tag = 0))]
    #[expect(clippy::too_many_arguments, reason = "a call of Python by keyword")]
    fn reduce_scatter(
        &self,
        input: (usize, usize),
        output: (usize, usize),
        dtype: &str,
        op: &str,
        keep: Option<Py<PyAny>>,
        name: Option<String>,
        prescale: f64,
        tag: u32,
    ) -> PyResult<Work> {
        let op = dtype::op(op)?;
        let task: Task = with_element!(dtype::dtype(dtype)?, T => {
            let input = Memory::from_address::<T>(input)?;
            let output = Memory::from_address::<T>(output)?;
            self.check_blocks("reduce_scatter", "input", input, output)?;
            Box::new(move |group, scratch| {
                // SAFETY: see the module.
                let (input, output) = unsafe { (input.as_ref::<T>(), output.as_mut::<T>()) };
                group.expect_shape(tag);
                if prescale == 1.0 {
                    group.reduce_scatter(input, output, op)?;
                } else {
                    let scaled = elements(scratch, input.len());
                    scaled.copy_from_slice(input);
                    scale(scaled, prescale);
                    group.reduce_scatter(scaled, output, op)?;
                }
                Ok(Outcome::Written)
            })
        });
        Ok(self.submit(task, keep, name))
    }

    /// Sends `input_splits[r]` bytes of the input (address, bytes) to each rank `r` and receives `output_splits[r]` from it.
    #[pyo3(signature = (input, input_splits, output, output_splits, keep = None, name = None))]
    fn alltoall(
        &self,
        input: (usize, usize),
        input_splits: Vec<usize>,
        output: (usize, usize),
        output_splits: Vec<usize>,
        keep: Option<Py<PyAny>>,
        name: Option<String>,
    ) -> PyResult<Work> {
        let input = Memory::from_address::<u8>(input)?;
        let output = Memory::from_address::<u8>(output)?;
        for (what, memory, splits) in [
            ("input", input, &input_splits),
            ("output", output, &output_splits),
        ] {
            let sum = (splits.iter()).try_fold(0_usize, |sum, split| sum.checked_add(*split));
            if splits.len() != self.size as usize || sum.is_none_or(|sum| sum > memory.len()) {
                return Err(PyValueError::new_err(format!(
                    "alltoall: {} {what} splits for {} ranks and an {what} of {} bytes: {splits:?}",
                    splits.len(),
                    self.size,
                    memory.len()
                )));
            }
        }
        let task: Task = Box::new(move |group, _| {
            // SAFETY: see the module.
            let (input, output) = unsafe { (input.as_ref::<u8>(), output.as_mut::<u8>()) };
            alltoall(group, input, &input_splits, output, &output_splits)
        });
        Ok(self.submit(task, keep, name))
    }

    /// Done when all ranks have called it.
    #[pyo3(signature = (name = None))]
    fn barrier(&self, name: Option<String>) -> Work {
        let task: Task = Box::new(|group, _| group.barrier().map(|()| Outcome::Written));
        self.submit(task, None, name)
    }

    /// Copies the `data` of rank `root`, of any length, to all ranks; the others pass None.
    #[pyo3(signature = (data, root, name = None))]
    fn broadcast_bytes(
        &self,
        data: Option<&Bound<'_, PyBytes>>,
        root: u32,
        name: Option<String>,
    ) -> Work {
        let mut bytes = data.map_or_else(Vec::new, |data| data.as_bytes().to_vec());
        let task: Task = Box::new(move |group, _| {
            group.broadcast_bytes(&mut bytes, root)?;
            Ok(Outcome::Bytes(bytes))
        });
        self.submit(task, None, name)
    }

    /// Copies the `data` of each rank, of any length, to all ranks.
    #[pyo3(signature = (data, name = None))]
    fn allgather_bytes(&self, data: &Bound<'_, PyBytes>, name: Option<String>) -> Work {
        let input = data.as_bytes().to_vec();
        let task: Task = Box::new(move |group, _| group.allgatherv(&input).map(Outcome::Each));
        self.submit(task, None, name)
    }
}

impl CollectiveQueue {
    /// Returns an error unless `blocks` holds one `block` for each rank.
    fn check_blocks(&self, call: &str, what: &str, blocks: Memory, block: Memory) -> PyResult<()> {
        if block.len().checked_mul(self.size as usize) == Some(blocks.len()) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{call}: the {what} holds {} elements, not {} for each of {} ranks",
            blocks.len(),
            block.len(),
            self.size
        )))
    }
}

/// `len` elements of the scratch memory, which grows as needed.
fn elements<T: Scale>(scratch: &mut Scratch, len: usize) -> &mut [T] {
    let words = (len * size_of::<T>()).div_ceil(size_of::<u64>());
    if scratch.len() < words {
        scratch.resize(words, 0);
    }
    // SAFETY: the elements are plain data of at most the words' alignment, and fit into the words.
    unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast::<T>(), len) }
}

/// Several buffers are combined as one message in the scratch memory. A single buffer is combined in place.
fn allreduce<T: Scale>(
    group: &mut Group,
    scratch: &mut Scratch,
    buffers: &[Memory],
    op: Op,
    (prescale, postscale): (f64, f64),
) -> Result<Outcome, GroupError> {
    if let [buffer] = buffers {
        // SAFETY: see the module.
        let data = unsafe { buffer.as_mut::<T>() };
        scale(data, prescale);
        group.allreduce(data, op)?;
        scale(data, postscale);
        return Ok(Outcome::Written);
    }
    let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    let fused = elements::<T>(scratch, total);
    let mut rest = &mut *fused;
    for buffer in buffers {
        let (part, after) = rest.split_at_mut(buffer.len());
        // SAFETY: see the module.
        part.copy_from_slice(unsafe { buffer.as_ref::<T>() });
        rest = after;
    }
    scale(fused, prescale);
    group.allreduce(fused, op)?;
    scale(fused, postscale);
    let mut rest = &*fused;
    for buffer in buffers {
        let (part, after) = rest.split_at(buffer.len());
        // SAFETY: see the module.
        unsafe { buffer.as_mut::<T>() }.copy_from_slice(part);
        rest = after;
    }
    Ok(Outcome::Written)
}

fn scale<T: Scale>(data: &mut [T], factor: f64) {
    if factor != 1.0 {
        for value in data {
            *value = value.scale(factor);
        }
    }
}

/// Each rank gathers the whole input of all ranks and copies its parts. That is `size` times the traffic of a direct exchange
/// between hosts, and one copy within a host.
fn alltoall(
    group: &mut Group,
    input: &[u8],
    input_splits: &[usize],
    output: &mut [u8],
    output_splits: &[usize],
) -> Result<Outcome, GroupError> {
    let (rank, size) = (
        group.topology().rank as usize,
        group.topology().size as usize,
    );
    // The splits of all ranks. Each rank checks all of them, so that all stop here if any two do not match.
    let local: Vec<u64> = (input_splits.iter().chain(output_splits))
        .map(|&split| split as u64)
        .collect();
    let mut all = vec![0; local.len() * size];
    group.allgather(&local, &mut all)?;
    let rows: Vec<(&[u64], &[u64])> = (all.chunks(local.len()))
        .map(|row| row.split_at(size))
        .collect();
    for (from, (sends, _)) in rows.iter().enumerate() {
        for (to, (_, expects)) in rows.iter().enumerate() {
            if sends[to] != expects[from] {
                return Err(GroupError::Argument(format!(
                    "rank {from} sends {} bytes to rank {to}, which has room for {}",
                    sends[to], expects[from]
                )));
            }
        }
    }
    // The input may be longer than the sum of the splits.
    let inputs = group.allgatherv(&input[..input_splits.iter().sum()])?;
    let mut rest = output;
    for ((sends, _), input) in rows.iter().zip(&inputs) {
        let start: u64 = sends[..rank].iter().sum();
        let (part, after) = rest.split_at_mut(sends[rank] as usize);
        part.copy_from_slice(&input[start as usize..][..part.len()]);
        rest = after;
    }
    Ok(Outcome::Written)
}
