//! With what new keys begin.

use std::{fmt, sync::Arc};

use elasticrun_collectives::Element;

use crate::core::{keys::Lens, optimizer::Float};

type Fill<T> = Arc<dyn Fn(u64, &mut [T]) + Send + Sync>;

/// With what the values of a new key begin: a function of the key alone, so that each server and each pull finds the same.
#[derive(Clone)]
pub struct Init<T> {
    /// None for zeros.
    fill: Option<Fill<T>>,
}

impl<T> Default for Init<T> {
    fn default() -> Self {
        Self { fill: None }
    }
}

impl<T> fmt::Debug for Init<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.fill {
            Some(_) => "Init::function",
            None => "Init::zeros",
        })
    }
}

impl<T: Element> Init<T> {
    /// Zeros.
    pub fn zeros() -> Self {
        Self::default()
    }

    /// Calls a function with the key and its values, which are zeros. It must give the same values each time.
    pub fn function(fill: impl Fn(u64, &mut [T]) + Send + Sync + 'static) -> Self {
        Self {
            fill: Some(Arc::new(fill)),
        }
    }

    pub(super) fn is_zeros(&self) -> bool {
        self.fill.is_none()
    }

    /// Appends the values of new keys.
    pub(super) fn append(&self, keys: &[u64], lens: Lens<'_>, values: &mut Vec<T>) {
        let first = values.len();
        values.resize(first + lens.total(0, keys.len()), T::zeroed());
        if let Some(fill) = &self.fill {
            let mut rest = &mut values[first..];
            for (position, &key) in keys.iter().enumerate() {
                let (own, others) = rest.split_at_mut(lens.len_at(position));
                fill(key, own);
                rest = others;
            }
        }
    }
}

impl<T: Float> Init<T> {
    /// Values evenly spread from `low` to below `high`.
    pub fn uniform(low: f64, high: f64, seed: u64) -> Self {
        Self::function(move |key, values| {
            let mut random = Random::new(key, seed);
            for value in values {
                *value = T::from_f64(low + (high - low) * random.next());
            }
        })
    }

    /// Values that are spread as in a normal distribution, cut off at six times the deviation.
    pub fn normal(mean: f64, deviation: f64, seed: u64) -> Self {
        Self::function(move |key, values| {
            let mut random = Random::new(key, seed);
            for value in values {
                // The sum of twelve has the deviation 1. It needs no function whose last bit depends on the machine.
                let sum: f64 = (0..12).map(|_| random.next()).sum();
                *value = T::from_f64(mean + deviation * (sum - 6.0));
            }
        })
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn new(key: u64, seed: u64) -> Self {
        Self(mix(key.wrapping_add(mix(seed))))
    }

    /// From 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(state: u64) -> u64 {
    let mut number = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(init: &Init<f32>, keys: &[u64], per_key: usize) -> Vec<f32> {
        let mut values = Vec::new();
        init.append(keys, Lens::Uniform(per_key), &mut values);
        values
    }

    #[test]
    fn values_depend_on_key_and_seed_alone() {
        let init = Init::uniform(-1.0, 1.0, 7);
        let both = values(&init, &[3, u64::MAX], 2);
        assert_eq!(both[..2], values(&init, &[3], 2));
        assert_eq!(both[2..], values(&init, &[u64::MAX], 2));
        assert_ne!(both[..2], both[2..]);
        assert_ne!(
            both,
            values(&Init::uniform(-1.0, 1.0, 8), &[3, u64::MAX], 2)
        );
        // Fixed for ever: a job that goes on with another release has the same weights.
        assert_eq!(values(&init, &[0], 1), [0.411_530_73]);
        assert_eq!(values(&Init::zeros(), &[5], 2), [0.0; 2]);
    }

    #[test]
    fn the_distributions_have_their_mean_and_deviation() {
        let keys: Vec<u64> = (0..10_000).collect();
        let moments = |init: Init<f32>| {
            let values = values(&init, &keys, 4);
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len() as f64;
            let square = values
                .iter()
                .map(|&v| (f64::from(v) - mean).powi(2))
                .sum::<f64>();
            (mean, (square / values.len() as f64).sqrt())
        };
        let (mean, deviation) = moments(Init::uniform(0.0, 2.0, 1));
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 1.0 / 3f64.sqrt()).abs() < 0.02);
        let (mean, deviation) = moments(Init::normal(5.0, 0.5, 1));
        assert!((mean - 5.0).abs() < 0.02 && (deviation - 0.5).abs() < 0.02);
    }
}
