//! Broadcasts.

use nix::errno::Errno;

use crate::{
    element::Element,
    error::Error,
    group::{Group, Operation, Stop},
    local::SMALL,
    signature::{CallSignature, OperationKind},
};

/// Bytes that travel together with the length of a message of unknown length.
const INLINE_BYTES: usize = 1016;

impl Group {
    /// Sends the `data` of rank `root` to all. All must pass the same length.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no rank `root`; else any of [`Error`].
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32) -> Result<(), Error> {
        self.check_root(root)?;
        let len = data.len();
        self.run(
            |sequence| {
                CallSignature::new(
                    OperationKind::Broadcast,
                    Some(T::DTYPE),
                    None,
                    root,
                    len,
                    sequence,
                )
            },
            |group, operation| {
                group.broadcast_parts(operation, bytemuck::cast_slice_mut(data), root)
            },
        )
    }

    /// Sends the bytes of rank `root` to all. `data` is resized to their number.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no rank `root`; [`Error::System`] if there is no memory for
    /// the message; else any of [`Error`].
    pub fn broadcast_bytes(&mut self, data: &mut Vec<u8>, root: u32) -> Result<(), Error> {
        self.check_root(root)?;
        let is_root = self.topology.rank == root;
        let mut first = [0; 8 + INLINE_BYTES];
        if is_root {
            let head = data.len().min(INLINE_BYTES);
            first[..8].copy_from_slice(&(data.len() as u64).to_le_bytes());
            first[8..8 + head].copy_from_slice(&data[..head]);
        }
        self.run(
            |sequence| {
                CallSignature::new(OperationKind::BroadcastBytes, None, None, root, 0, sequence)
            },
            |group, operation| group.broadcast_parts(operation, &mut first, root),
        )?;
        let mut len = [0; 8];
        len.copy_from_slice(&first[..8]);
        let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
        let head = len.min(INLINE_BYTES);
        if !is_root {
            data.clear();
            data.try_reserve_exact(len).map_err(|_| Error::System {
                call: "malloc",
                errno: Errno::ENOMEM,
            })?;
            data.extend_from_slice(&first[8..8 + head]);
            data.resize(len, 0);
        }
        if len == head {
            return Ok(());
        }
        self.run(
            |sequence| {
                CallSignature::new(
                    OperationKind::BroadcastBytes,
                    None,
                    None,
                    root,
                    len,
                    sequence,
                )
            },
            |group, operation| group.broadcast_parts(operation, &mut data[head..], root),
        )
    }

    fn check_root(&self, root: u32) -> Result<(), Error> {
        let size = self.topology.size;
        if root < size {
            return Ok(());
        }
        Err(Error::Argument(format!(
            "root {root} is not a rank of a round of {size}"
        )))
    }

    fn broadcast_parts(
        &mut self,
        operation: Operation<'_>,
        data: &mut [u8],
        root: u32,
    ) -> Result<(), Stop> {
        let topology = &self.topology;
        let net_operation = operation.on_net();
        let mut between = self.net.as_mut().map(|net| {
            move |data: &mut [u8]| {
                let host = net.host_of(root);
                net.broadcast(net_operation, data, host).map_err(Stop::from)
            }
        });
        let Some(local) = &mut self.local else {
            return between.map_or(Ok(()), |mut between| between(data));
        };
        let is_local = topology.local_ranks().contains(&root);
        let source = if is_local {
            root - topology.first_rank
        } else {
            0
        };
        let (call, deadline) = (operation.call, operation.deadline);
        if topology.host_count == 1 {
            return Ok(local.broadcast(Some(call), deadline, data, source)?);
        }
        if data.len() <= SMALL {
            let is_root = topology.rank == root;
            return local.broadcast_small_with(call, deadline, data, source, is_root, between);
        }
        if is_local {
            local.broadcast(Some(call), deadline, data, source)?;
        }
        if let Some(between) = &mut between {
            between(data)?;
        }
        if !is_local {
            local.broadcast(Some(call), deadline, data, source)?;
        }
        Ok(())
    }
}
