//! Workers and servers whose type of values is known only when the program runs, over memory that belongs to others: for bindings
//! to other languages. They call the generic ones.

/// Evaluates an expression with the element type that a [`DType`] names.
macro_rules! with_element {
    ($dtype:expr, $name:ident => $body:expr) => {
        with_element!(@match $dtype, $name, $body,
            U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64,
            F16 half::f16, Bf16 half::bf16, F32 f32, F64 f64)
    };
    (@match $dtype:expr, $name:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $dtype {
            $(elasticrun_collectives::DType::$variant => {
                type $name = $type;
                $body
            })*
        }
    };
}

mod memory;
mod server;
mod worker;

pub use memory::{Elements, MutElements};
pub use server::{AnyHandler, AnyPairs, AnyServer, elastic_sums, new_server, new_summing_server};
pub use worker::{AnyPull, AnyPulled, AnyWorker, new_worker};

use elasticrun_collectives::DType;

/// Bytes of an element.
pub fn size_of(dtype: DType) -> usize {
    with_element!(dtype, T => std::mem::size_of::<T>())
}

/// The type with this name: `f32`, `f64`, `f16`, `bf16`, or `i` or `u` with 8, 16, 32 or 64. `None` if there is none.
pub fn dtype(name: &str) -> Option<DType> {
    use DType::{Bf16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let all = [U8, I8, U16, I16, U32, I32, U64, I64, F16, Bf16, F32, F64];
    all.into_iter()
        .find(|dtype| DType::name(*dtype as u8) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_in_errors() {
        for name in ["f32", "bf16", "u8", "i64"] {
            let found = dtype(name).unwrap();
            assert_eq!(DType::name(found as u8), name);
        }
        assert_eq!(dtype("byte"), None);
        assert_eq!(dtype("f128"), None);
        assert_eq!(dtype("f16").map(size_of), Some(2));
    }
}
