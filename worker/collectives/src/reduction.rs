//! What a reduction does.

/// How the elements of the ranks are combined, in ascending order of rank within a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Sum. Integers wrap around.
    Sum = 0,
    /// Sum divided by the number of ranks. For integers, the sum wraps around and the division
    /// rounds towards zero.
    Average = 1,
    /// Minimum. NaN if any element is NaN.
    Min = 2,
    /// Maximum. NaN if any element is NaN.
    Max = 3,
    /// Product. Integers wrap around.
    Product = 4,
    /// Bitwise and. Integers only.
    BitAnd = 5,
    /// Bitwise or. Integers only.
    BitOr = 6,
    /// Bitwise exclusive or. Integers only.
    BitXor = 7,
}

impl Op {
    /// Whether the reduction is bitwise, which floats do not support.
    pub(crate) fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor)
    }

    pub(crate) fn name(code: u8) -> &'static str {
        match code {
            0 => "sum",
            1 => "average",
            2 => "min",
            3 => "max",
            4 => "product",
            5 => "bitwise and",
            6 => "bitwise or",
            7 => "bitwise xor",
            _ => "unknown reduction",
        }
    }
}

/// The last step of a reduction, applied to a complete sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finish {
    /// No further step.
    Keep,
    /// Divides by a number of ranks.
    Divide(u32),
    /// Multiplies by a factor. Only for types that accumulate in f32.
    Multiply(f32),
}
