//! The shape of a request: how its keys, lens and values belong together, and what is refused.

/// Why the arrays of a request do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no key.
    #[error("no keys: a push or pull needs at least one")]
    Empty,
    /// A key is less than the one before it.
    #[error("key {key} at position {position} is less than the key before it: sort the keys")]
    Unsorted {
        /// Index of the key.
        position: usize,
        /// The key.
        key: u64,
    },
    /// A key occurs twice.
    #[error("key {key} at position {position} is there twice: add up its values before")]
    Repeated {
        /// Index of the second occurrence.
        position: usize,
        /// The key.
        key: u64,
    },
    /// There are more or fewer lens than keys.
    #[error("{lens} lens for {keys} keys: give one len for each key, or none")]
    LensCount {
        /// Number of keys.
        keys: usize,
        /// Number of lens.
        lens: usize,
    },
    /// The lens do not add up to the number of values.
    #[error("the lens add up to {total} but there are {values} values")]
    LensSum {
        /// The sum of the lens.
        total: u64,
        /// Number of values.
        values: usize,
    },
    /// The number of values is no multiple of the number of keys.
    #[error("{values} values cannot be divided evenly among {keys} keys: give lens")]
    Uneven {
        /// Number of keys.
        keys: usize,
        /// Number of values.
        values: usize,
    },
    /// More keys, lens or values than a frame can have.
    #[error("{what} of {count} is more than one request can have ({max}): split it")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// The memory for the result of a pull has another size.
    #[error("the pull has {values} values, but there is memory for {space}")]
    Memory {
        /// Number of values.
        values: usize,
        /// Number of values that the memory holds.
        space: usize,
    },
}

/// How many values each key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lens<'a> {
    /// All keys have so many.
    Uniform(usize),
    /// One number for each key.
    Mixed(&'a [u32]),
}

impl Lens<'_> {
    /// The lengths of the keys at these positions.
    pub(crate) fn slice(&self, positions: std::ops::Range<usize>) -> Self {
        match self {
            Self::Uniform(len) => Self::Uniform(*len),
            Self::Mixed(lens) => Self::Mixed(&lens[positions]),
        }
    }

    /// The number of values of the key at `position`.
    pub fn len_at(self, position: usize) -> usize {
        match self {
            Self::Uniform(len) => len,
            Self::Mixed(lens) => lens[position] as usize,
        }
    }

    /// The number of values of the keys from `first` to before `end`.
    pub fn total(self, first: usize, end: usize) -> usize {
        match self {
            Self::Uniform(len) => len * (end - first),
            Self::Mixed(lens) => lens[first..end].iter().map(|&len| len as usize).sum(),
        }
    }
}

/// Limits of the numbers in a frame's header.
pub(crate) const MAX_KEYS: usize = 1 << 28;
pub(crate) const MAX_VALUE_BYTES: u64 = 1 << 36;

/// Checks that keys are strictly ascending.
///
/// # Errors
/// The first key that is not greater than the one before it.
pub(crate) fn check_keys(keys: &[u64]) -> Result<(), KeyError> {
    if keys.is_empty() {
        return Err(KeyError::Empty);
    }
    if keys.len() > MAX_KEYS {
        return Err(too_many(
            "a number of keys",
            keys.len() as u64,
            MAX_KEYS as u64,
        ));
    }
    // Without an early exit, so that the compiler vectorises it.
    let ascending = keys
        .windows(2)
        .fold(true, |all, pair| all & (pair[0] < pair[1]));
    if ascending {
        return Ok(());
    }
    let position = 1 + keys
        .windows(2)
        .position(|pair| pair[0] >= pair[1])
        .expect("a pair is not ascending");
    let key = keys[position];
    Err(if keys[position - 1] == key {
        KeyError::Repeated { position, key }
    } else {
        KeyError::Unsorted { position, key }
    })
}

/// Checks keys, lens and the number of values of a request, and says how many values each key has.
///
/// # Errors
/// They do not belong together.
pub(crate) fn check<'a>(
    keys: &[u64],
    lens: Option<&'a [u32]>,
    values: usize,
) -> Result<Lens<'a>, KeyError> {
    check_keys(keys)?;
    check_lens(keys.len(), lens, values)
}

/// Checks lens and the number of values for so many keys.
///
/// # Errors
/// They do not belong together.
pub(crate) fn check_lens(
    keys: usize,
    lens: Option<&[u32]>,
    values: usize,
) -> Result<Lens<'_>, KeyError> {
    let Some(lens) = lens else {
        let per_key = values.checked_div(keys).ok_or(KeyError::Empty)?;
        return match per_key * keys == values && u32::try_from(per_key).is_ok() {
            true => Ok(Lens::Uniform(per_key)),
            false => Err(KeyError::Uneven { keys, values }),
        };
    };
    if lens.len() != keys {
        return Err(KeyError::LensCount {
            keys,
            lens: lens.len(),
        });
    }
    let total: u64 = lens.iter().map(|&len| u64::from(len)).sum();
    match total == values as u64 {
        true => Ok(Lens::Mixed(lens)),
        false => Err(KeyError::LensSum { total, values }),
    }
}

pub(crate) fn too_many(what: &'static str, count: u64, max: u64) -> KeyError {
    KeyError::TooMany { what, count, max }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_mistake_has_a_name() {
        assert_eq!(check(&[], None, 0), Err(KeyError::Empty));
        assert_eq!(
            check(&[1, 5, 3], None, 3),
            Err(KeyError::Unsorted {
                position: 2,
                key: 3
            })
        );
        assert_eq!(
            check(&[1, 5, 5], None, 3),
            Err(KeyError::Repeated {
                position: 2,
                key: 5
            })
        );
        assert_eq!(
            check(&[1, 2], Some(&[1]), 1),
            Err(KeyError::LensCount { keys: 2, lens: 1 })
        );
        assert_eq!(
            check(&[1, 2], Some(&[1, 3]), 5),
            Err(KeyError::LensSum {
                total: 4,
                values: 5
            })
        );
        assert_eq!(
            check(&[1, 2], None, 5),
            Err(KeyError::Uneven { keys: 2, values: 5 })
        );
        assert_eq!(check(&[0, u64::MAX], None, 6), Ok(Lens::Uniform(3)));
        assert_eq!(check(&[4], Some(&[0]), 0), Ok(Lens::Mixed(&[0])));
    }

    proptest! {
        #[test]
        fn keys_are_accepted_if_and_only_if_they_are_strictly_ascending(keys: Vec<u8>) {
            let keys: Vec<u64> = keys.into_iter().map(u64::from).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(check_keys(&keys).is_ok(), !keys.is_empty() && sorted == keys);
        }
    }
}
