//! What a rank called: compared between ranks at each operation, so that a mismatch is an error.

use std::fmt;

use crate::element::{DType, Op};

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Nobody leaves before all have entered.
    Barrier = 1,
    /// One rank's data to all.
    Broadcast = 2,
    /// All ranks' data to all.
    Allgather = 3,
    /// All ranks' data, of different sizes, to all.
    Allgatherv = 4,
    /// Element-wise reduction, result to all.
    Allreduce = 5,
    /// Element-wise reduction, each rank gets its share.
    ReduceScatter = 6,
    /// Exchange of the ranks' places, made by the library itself before it first needs them.
    Places = 7,
    /// One rank's bytes to all, who do not know how many.
    BroadcastBytes = 8,
}

impl Kind {
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
pub struct Call {
    /// Kind, element type and reduction, one byte each.
    pub(crate) code: u32,
    /// Root rank; where there is none, what the caller says of the shape of its data, 0 for nothing.
    pub(crate) root: u32,
    /// Elements (bytes for the operations on bytes).
    pub(crate) len: u64,
    /// Count of operations of this group before this one.
    pub(crate) seq: u64,
}

impl Call {
    pub(crate) fn new(
        kind: Kind,
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
        kind == Kind::Broadcast as u32 || kind == Kind::BroadcastBytes as u32
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, dtype, op, _] = self.code.to_le_bytes();
        write!(f, "{}(", Kind::name(kind))?;
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

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
