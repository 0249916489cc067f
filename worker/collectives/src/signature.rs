//! The signature of a call: compared between ranks at each operation, so that a mismatch is an
//! error.

use std::fmt;

use crate::{element::DType, reduction::Op};

/// The operations. The values are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OperationKind {
    /// No member leaves before all have entered.
    Barrier = 1,
    /// Sends the data of one rank to all.
    Broadcast = 2,
    /// Sends the data of all ranks to all.
    Allgather = 3,
    /// Sends the data of all ranks, of different sizes, to all.
    Allgatherv = 4,
    /// Element-wise reduction. All ranks get the result.
    Allreduce = 5,
    /// Element-wise reduction. Each rank gets one block of the result.
    ReduceScatter = 6,
    /// Exchange of the first rank of each host. The crate runs it as the last step of connecting.
    Places = 7,
    /// Sends the bytes of one rank to all. The other ranks do not know the length in advance.
    BroadcastBytes = 8,
}

impl OperationKind {
    fn name(code: u8) -> &'static str {
        match code {
            1 => "barrier",
            2 => "broadcast",
            3 => "allgather",
            4 => "allgatherv",
            5 => "allreduce",
            6 => "reduce_scatter",
            7 => "exchange of places",
            8 => "broadcast_bytes",
            _ => "an unknown operation",
        }
    }
}

/// One rank's view of an operation. Two ranks match if all fields are equal.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSignature {
    /// Operation kind, element type and reduction, one byte each.
    pub(crate) code: u32,
    /// The root rank. For operations without a root, the shape digest of the caller, or 0.
    pub(crate) root: u32,
    /// Number of elements. Number of bytes for the operations on bytes.
    pub(crate) len: u64,
    /// Number of operations of this group before this one.
    pub(crate) seq: u64,
}

impl CallSignature {
    pub(crate) fn new(
        kind: OperationKind,
        dtype: Option<DType>,
        op: Option<Op>,
        root: u32,
        len: usize,
        seq: u64,
    ) -> Self {
        let code =
            kind as u32 | dtype.map_or(0, |d| d as u32) << 8 | op.map_or(0, |o| o as u32 + 1) << 16;
        Self {
            code,
            root,
            len: len as u64,
            seq,
        }
    }

    pub(crate) fn has_root(&self) -> bool {
        let kind = self.code & 0xff;
        kind == OperationKind::Broadcast as u32 || kind == OperationKind::BroadcastBytes as u32
    }
}

impl fmt::Display for CallSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, dtype, op, _] = self.code.to_le_bytes();
        write!(f, "{}(", OperationKind::name(kind))?;
        if op != 0 {
            write!(f, "{}, ", Op::name(op - 1))?;
        }
        if self.has_root() {
            write!(f, "root {}, ", self.root)?;
        }
        write!(f, "{} x {}", self.len, DType::name(dtype))?;
        if !self.has_root() && self.root != 0 {
            write!(f, " of shape #{:08x}", self.root)?;
        }
        write!(f, ")")?;
        write!(f, " as operation {}", self.seq)
    }
}

impl fmt::Debug for CallSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
