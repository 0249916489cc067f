//! Built-in types as states: little-endian. Vectors and strings follow their length as `u64`.

use std::io::{self, Write};

use super::{Error, State, take};
use crate::{Session, World};

/// Numbers whose memory is their encoding, so that a vector of them is copied at once.
pub trait Number: bytemuck::Pod {}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "states are little-endian, and numbers are copied as they are"
);

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {}

        impl State for $number {
            fn save(&self, out: &mut dyn Write) -> io::Result<()> {
                out.write_all(bytemuck::bytes_of(self))
            }

            fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
                *self = bytemuck::pod_read_unaligned(take(from, size_of::<Self>() as u64)?);
                Ok(())
            }
        }
    )*};
}

numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

fn save_len(len: usize, out: &mut dyn Write) -> io::Result<()> {
    (len as u64).save(out)
}

fn restore_len(from: &mut &[u8]) -> Result<u64, Error> {
    let mut len = 0_u64;
    len.restore(from)?;
    Ok(len)
}

/// Any length. A restored vector has the length that was saved.
impl<T: Number> State for Vec<T> {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        save_len(self.len(), out)?;
        out.write_all(bytemuck::cast_slice(self))
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        let len = restore_len(from)?;
        let bytes = take(from, len.saturating_mul(size_of::<T>() as u64))?;
        self.resize(bytes.len() / size_of::<T>(), T::zeroed());
        bytemuck::cast_slice_mut(self).copy_from_slice(bytes);
        Ok(())
    }
}

impl State for String {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        save_len(self.len(), out)?;
        out.write_all(self.as_bytes())
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        let len = restore_len(from)?;
        let text = std::str::from_utf8(take(from, len)?).map_err(Error::other)?;
        text.clone_into(self);
        Ok(())
    }
}

impl State for bool {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        u8::from(*self).save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        *self = match take(from, 1)?[0] {
            0 => false,
            1 => true,
            other => return Err(Error::Invalid(format!("{other} is no boolean"))),
        };
        Ok(())
    }
}

/// No state: for jobs that only need the rounds.
impl State for () {
    fn save(&self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    fn restore(&mut self, _: &mut &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),+))*) => {$(
        impl<$($part: State),+> State for ($($part,)+) {
            fn save(&self, out: &mut dyn Write) -> io::Result<()> {
                $(self.$index.save(out)?;)+
                Ok(())
            }

            fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
                $(self.$index.restore(from)?;)+
                Ok(())
            }

            fn reset(&mut self, world: &World) {
                $(self.$index.reset(world);)+
            }

            fn enter(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
                $(self.$index.enter(session)?;)+
                Ok(())
            }

            fn agree(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
                $(self.$index.agree(session)?;)+
                Ok(())
            }

            fn committed(&mut self) -> Result<(), crate::Error> {
                $(self.$index.committed()?;)+
                Ok(())
            }
        }
    )*};
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

impl<S: State + ?Sized> State for &mut S {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        (**self).save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        (**self).restore(from)
    }

    fn reset(&mut self, world: &World) {
        (**self).reset(world);
    }

    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        (**self).enter(session)
    }

    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), crate::Error> {
        (**self).agree(session)
    }

    fn compare(
        &mut self,
        local: Option<&[u8]>,
        gathered: Option<&[Vec<u8>]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        (**self).compare(local, gathered)
    }

    fn committed(&mut self) -> Result<(), crate::Error> {
        (**self).committed()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::restore_all;

    fn saved(state: &impl State) -> Vec<u8> {
        let mut bytes = Vec::new();
        state.save(&mut bytes).unwrap();
        bytes
    }

    proptest! {
        #[test]
        fn what_was_saved_is_restored(
            weights in prop::collection::vec(any::<f32>(), 0..50),
            step: u64,
            name: String,
            done: bool,
        ) {
            let state = (weights, step, (name, done));
            let bytes = saved(&state);
            let mut other = (vec![1.0_f32; 7], 0_u64, ("before".to_owned(), true));
            restore_all(&mut other, &bytes).unwrap();
            prop_assert_eq!(saved(&other), bytes);
        }

        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = restore_all(&mut (vec![0_u64], String::new(), true), &bytes);
        }
    }

    #[test]
    fn a_length_beyond_the_bytes_allocates_nothing() {
        let bytes = saved(&u64::MAX);
        let error = restore_all(&mut Vec::<u64>::new(), &bytes).unwrap_err();
        assert!(matches!(error, Error::Short { have: 0, .. }), "{error}");
    }

    #[test]
    fn states_of_other_sizes_are_no_replicas() {
        let mut state = 0_u64;
        let message =
            |state: &mut u64, local: Option<&[u8]>| state.compare(local, None).unwrap().unwrap();
        let messages = [
            message(&mut state, None),
            message(&mut state, Some(&[1, 2])),
            message(&mut state, Some(&[3, 4])),
        ];
        assert_eq!(state.compare(None, Some(&messages)).unwrap(), None);
        let messages = [
            messages[0].clone(),
            messages[1].clone(),
            message(&mut state, Some(&[1])),
        ];
        let error = state
            .compare(None, Some(&messages))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("rank 1 has committed a state of 2 bytes, and rank 2 one of 1"),
            "{error}"
        );
    }

    #[test]
    fn what_is_left_over_is_an_error() {
        let error = restore_all(&mut 0_u8, &[1, 2, 3]).unwrap_err();
        assert!(matches!(error, Error::Left { left: 2 }), "{error}");
    }
}
