//! The types of weights.

use std::ops::{Add, Div, Mul, Sub};

use elasticrun_collectives::Element;

/// A type of weights: `f32` or `f64`.
pub trait Float:
    Element + Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    /// Rounds.
    fn from_f64(value: f64) -> Self;
    /// The square root, correctly rounded.
    fn root(self) -> Self;
}

impl Float for f32 {
    fn from_f64(value: f64) -> Self {
        value as Self
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
}

impl Float for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
}
