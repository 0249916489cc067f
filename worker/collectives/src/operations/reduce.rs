//! Barrier, allreduce and reduce-scatter.

use crate::{
    element::{DType, Element},
    error::Error,
    group::{Group, Operation, Stop},
    local::{Buffers, SMALL},
    reduction::{Finish, Op},
    signature::{CallSignature, OperationKind},
};

impl Group {
    /// Returns when all members have called it.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Argument`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.run(
            |sequence| CallSignature::new(OperationKind::Barrier, None, None, 0, 0, sequence),
            |group, operation| {
                let net_operation = operation.on_net();
                match (&mut group.local, &mut group.net) {
                    (Some(local), net) if group.topology.host_count > 1 => {
                        let between = net
                            .as_mut()
                            .map(|net| || net.barrier(net_operation).map_err(Stop::from));
                        local.wait_all_with(operation.call, operation.deadline, between)
                    }
                    (Some(local), _) => Ok(local.wait_all(operation.call, operation.deadline)?),
                    (None, Some(net)) => Ok(net.barrier(net_operation)?),
                    (None, None) => Ok(()),
                }
            },
        )
    }

    /// Combines the `data` of all members element by element. All get the result, with the same
    /// bits.
    ///
    /// Within a host, values are combined in ascending order of rank. Between hosts, the order
    /// depends on their number and on the size. 16-bit floats are accumulated in f32 and rounded
    /// once per host and once per step between hosts.
    ///
    /// # Errors
    /// Any of [`Error`] but [`Error::Argument`].
    pub fn allreduce<T: Element>(&mut self, data: &mut [T], op: Op) -> Result<(), Error> {
        check_op::<T>(op)?;
        let original = self.may_overflow::<T>(op).then(|| data.to_vec());
        self.allreduce_once(data, op, false)?;
        match original {
            // All members have the same bits, so all of them repeat it, or none.
            Some(original) if !T::all_finite(data) => {
                data.copy_from_slice(&original);
                self.allreduce_once(data, op, true)
            }
            _ => Ok(()),
        }
    }

    /// Whether the sum of an average between hosts may exceed the type's range although its result
    /// does not.
    fn may_overflow<T: Element>(&self, op: Op) -> bool {
        op == Op::Average && T::SCALED_AVERAGE && self.topology.host_count > 1
    }

    fn allreduce_once<T: Element>(
        &mut self,
        data: &mut [T],
        op: Op,
        scaled: bool,
    ) -> Result<(), Error> {
        let len = data.len();
        self.run(
            |sequence| {
                CallSignature::new(
                    OperationKind::Allreduce,
                    Some(T::DTYPE),
                    Some(op),
                    0,
                    len,
                    sequence,
                )
            },
            |group, operation| group.allreduce_parts(operation, data, op, scaled),
        )
    }

    fn allreduce_parts<T: Element>(
        &mut self,
        operation: Operation<'_>,
        data: &mut [T],
        op: Op,
        scaled: bool,
    ) -> Result<(), Stop> {
        let net_operation = operation.on_net();
        let finishes = Finishes::new(op, &self.topology, scaled);
        match (&mut self.local, &mut self.net) {
            (Some(local), net) if self.topology.host_count > 1 => {
                if size_of_val(data) <= SMALL {
                    let between = net.as_mut().map(|net| {
                        |sum: &mut [T]| {
                            net.allreduce(net_operation, sum, op, finishes.between)
                                .map_err(Stop::from)
                        }
                    });
                    let (call, deadline) = (operation.call, operation.deadline);
                    return local.reduce_small_with(
                        call,
                        deadline,
                        data,
                        op,
                        finishes.within,
                        between,
                    );
                }
                let buffers = match net {
                    Some(_) => Buffers::InPlace(&mut *data),
                    None => Buffers::Apart(&*data, None),
                };
                local.reduce(
                    operation.call,
                    operation.deadline,
                    buffers,
                    op,
                    finishes.within,
                )?;
                if let Some(net) = net {
                    net.allreduce(net_operation, data, op, finishes.between)?;
                }
                let bytes = bytemuck::cast_slice_mut(data);
                Ok(local.broadcast(None, operation.deadline, bytes, 0)?)
            }
            (Some(local), _) => {
                let data = Buffers::InPlace(data);
                Ok(local.reduce(
                    operation.call,
                    operation.deadline,
                    data,
                    op,
                    finishes.within,
                )?)
            }
            (None, Some(net)) => {
                T::finish(data, finishes.within);
                Ok(net.allreduce(net_operation, data, op, finishes.between)?)
            }
            (None, None) => Ok(()),
        }
    }

    /// Combines the `input` of all members element by element and gives each member one block of
    /// the result. `input` has a block of `output.len()` elements for each rank, in rank order.
    ///
    /// # Errors
    /// [`Error::Argument`] if `input.len()` is not `size * output.len()`; else any of [`Error`].
    pub fn reduce_scatter<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: Op,
    ) -> Result<(), Error> {
        let size = self.topology.size as usize;
        if input.len() != size * output.len() {
            return Err(Error::Argument(format!(
                "reduce_scatter over {size} ranks needs an input of {size} x {} elements, not {}",
                output.len(),
                input.len()
            )));
        }
        check_op::<T>(op)?;
        self.reduce_scatter_once(input, output, op, false)?;
        if self.may_overflow::<T>(op) {
            // Members have different blocks, so they must agree on whether any of them overflowed.
            let mut overflowed = [u8::from(!T::all_finite(output))];
            self.allreduce_once(&mut overflowed, Op::Max, false)?;
            if overflowed != [0] {
                self.reduce_scatter_once(input, output, op, true)?;
            }
        }
        Ok(())
    }

    fn reduce_scatter_once<T: Element>(
        &mut self,
        input: &[T],
        output: &mut [T],
        op: Op,
        scaled: bool,
    ) -> Result<(), Error> {
        let len = output.len();
        self.run(
            |sequence| {
                let dtype = Some(T::DTYPE);
                CallSignature::new(
                    OperationKind::ReduceScatter,
                    dtype,
                    Some(op),
                    0,
                    len,
                    sequence,
                )
            },
            |group, operation| group.reduce_scatter_parts(operation, input, output, op, scaled),
        )
    }

    fn reduce_scatter_parts<T: Element>(
        &mut self,
        operation: Operation<'_>,
        input: &[T],
        output: &mut [T],
        op: Op,
        scaled: bool,
    ) -> Result<(), Stop> {
        let finishes = Finishes::new(op, &self.topology, scaled);
        if self.topology.host_count == 1 {
            match &mut self.local {
                Some(local) => {
                    let (call, deadline) = (operation.call, operation.deadline);
                    local.reduce_scatter(call, deadline, input, output, op, finishes.within)?;
                }
                None => output.copy_from_slice(input),
            }
            return Ok(());
        }
        let block = output.len();
        let mut sum = self.net.as_ref().map(|_| input.to_vec());
        match &mut self.local {
            Some(local) => {
                let buffers = Buffers::Apart(input, sum.as_deref_mut());
                local.reduce(
                    operation.call,
                    operation.deadline,
                    buffers,
                    op,
                    finishes.within,
                )?;
            }
            None => T::finish(sum.as_deref_mut().unwrap_or_default(), finishes.within),
        }
        let mut host_block = None;
        if let (Some(net), Some(sum)) = (&mut self.net, &mut sum) {
            let bounds = net.bounds(|_| block);
            net.reduce_scatter(operation.on_net(), sum, &bounds, op, finishes.between)?;
            let host = self.topology.host_index as usize;
            host_block = Some(&sum[bounds[host]..bounds[host + 1]]);
        }
        match (&mut self.local, host_block) {
            (Some(local), host_block) => {
                Ok(local.scatter(operation.deadline, host_block, output)?)
            }
            (None, host_block) => {
                output.copy_from_slice(host_block.unwrap_or_default());
                Ok(())
            }
        }
    }
}

/// Refuses bitwise reductions of floats.
fn check_op<T: Element>(op: Op) -> Result<(), Error> {
    if !op.is_bitwise() || !T::DTYPE.is_float() {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{} of {}: bits are those of integers",
        Op::name(op as u8),
        DType::name(T::DTYPE as u8)
    )))
}

/// The last steps of sums within a host and between hosts. Together they yield the average.
#[derive(Clone, Copy, Debug)]
struct Finishes {
    within: Finish,
    between: Finish,
}

impl Finishes {
    /// With `scaled`, no intermediate sum can overflow, at the cost of the smallest values.
    fn new(op: Op, topology: &crate::topology::Topology, scaled: bool) -> Self {
        let size = topology.size;
        let (within, between) = match op {
            Op::Average if topology.host_count == 1 => (Finish::Divide(size), Finish::Keep),
            Op::Average if scaled => {
                // Scaling by a power of two loses only bits below the smallest value of the type.
                let scale = size.next_power_of_two() as f32;
                let rest = (f64::from(scale) / f64::from(size)) as f32;
                (Finish::Multiply(1.0 / scale), Finish::Multiply(rest))
            }
            Op::Average => (Finish::Keep, Finish::Divide(size)),
            _ => (Finish::Keep, Finish::Keep),
        };
        Self { within, between }
    }
}
