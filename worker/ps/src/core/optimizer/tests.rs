//! Tests of the optimizers: bit for bit against plain loops, and closely against torch.

use proptest::{collection::vec, prelude::*};
use serde::Deserialize;

use super::*;
use crate::core::{
    keys::Lens,
    ranges::KeyRange,
    store::{DenseStore, Init, SparseStore, Store},
};

/// One weight and its state, as the formulas have them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plain {
    w: f32,
    first: f32,
    second: f32,
    step: i32,
}

impl Plain {
    fn new(optimizer: &Optimizer, w: f32) -> Self {
        let first = match optimizer.rule {
            Rule::Adagrad { initial, .. } => initial as f32,
            _ => 0.0,
        };
        Self {
            w,
            first,
            second: 0.0,
            step: 0,
        }
    }

    fn push(&mut self, optimizer: &Optimizer, g: f32) {
        let rate = optimizer.learning_rate as f32;
        let decay = optimizer.weight_decay as f32;
        match optimizer.rule {
            Rule::Sgd => self.w -= rate * (g + decay * self.w),
            Rule::Momentum { momentum, nesterov } => {
                let momentum = momentum as f32;
                let g = g + decay * self.w;
                self.first = momentum * self.first + g;
                let step = if nesterov {
                    g + momentum * self.first
                } else {
                    self.first
                };
                self.w -= rate * step;
            }
            Rule::Adagrad { epsilon, .. } => {
                let g = g + decay * self.w;
                self.first += g * g;
                self.w -= rate * g / (self.first.sqrt() + epsilon as f32);
            }
            Rule::Adam {
                beta1,
                beta2,
                epsilon,
                decoupled,
            } => {
                self.step += 1;
                let mut g = g;
                let mut w = self.w;
                if decoupled {
                    w *= (1.0 - optimizer.learning_rate * optimizer.weight_decay) as f32;
                } else {
                    g += decay * w;
                }
                self.first += (1.0 - beta1) as f32 * (g - self.first);
                self.second = beta2 as f32 * self.second + (1.0 - beta2) as f32 * g * g;
                let rate = optimizer.learning_rate / (1.0 - beta1.powi(self.step));
                let root = (1.0 - beta2.powi(self.step)).sqrt() as f32;
                let divisor = self.second.sqrt() / root + epsilon as f32;
                self.w = w - rate as f32 * self.first / divisor;
            }
        }
    }
}

fn optimizers() -> impl Strategy<Value = Optimizer> {
    let rule = prop_oneof![
        Just(Rule::Sgd),
        (0.0..0.99, any::<bool>())
            .prop_map(|(momentum, nesterov)| Rule::Momentum { momentum, nesterov }),
        (0.0..1.0, 1e-10..1e-3).prop_map(|(initial, epsilon)| Rule::Adagrad { initial, epsilon }),
        (0.0..0.99, 0.0..0.999, 1e-10..1e-3, any::<bool>()).prop_map(
            |(beta1, beta2, epsilon, decoupled)| Rule::Adam {
                beta1,
                beta2,
                epsilon,
                decoupled
            }
        ),
    ];
    let decay = prop_oneof![Just(0.0), 0.0..0.1];
    (rule, 0.0..0.5, decay).prop_map(|(rule, learning_rate, weight_decay)| Optimizer {
        rule,
        learning_rate,
        weight_decay,
    })
}

proptest! {
    /// Any pushes to any keys, with a change of the rate between: the same bits as a plain loop, in both stores.
    #[test]
    fn the_same_bits_as_a_plain_loop(
        optimizer in optimizers(),
        pushes in vec((any::<u64>(), vec(-2f32..2.0, 3 * 20)), 1..12),
        rate in 0.0..0.5,
    ) {
        let mut running = Running::new(optimizer);
        let init = || Init::function(|key, values| {
            for (index, value) in values.iter_mut().enumerate() {
                *value = key as f32 / 8.0 - index as f32;
            }
        });
        let range = KeyRange { first: 0, last: 19 };
        let mut sparse = SparseStore::new(init());
        let mut dense = DenseStore::new(range, 3, init()).unwrap();
        let mut plain: Vec<Plain> = dense.values().iter().map(|&w| Plain::new(&optimizer, w)).collect();
        for (number, (mask, gradients)) in pushes.iter().enumerate() {
            if number == 6 {
                running.change(Change { learning_rate: Some(rate), weight_decay: None }).unwrap();
            }
            let keys: Vec<u64> = (0..20).filter(|key| mask >> key & 1 == 1).collect();
            if keys.is_empty() {
                continue;
            }
            let own: Vec<f32> = keys.iter().flat_map(|&key| &gradients[key as usize * 3..][..3]).copied().collect();
            for (&key, gradients) in keys.iter().zip(own.chunks(3)) {
                for (index, &g) in gradients.iter().enumerate() {
                    plain[key as usize * 3 + index].push(running.optimizer(), g);
                }
            }
            sparse.push(&keys, Lens::Uniform(3), &own, &running).unwrap();
            dense.push(&keys, Lens::Uniform(3), &own, &running).unwrap();
        }
        let expected: Vec<u32> = plain.iter().map(|plain| plain.w.to_bits()).collect();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(dense.values()), expected.clone());
        let keys: Vec<u64> = (0..20).collect();
        let expect = crate::core::store::Expected::Known(Lens::Uniform(3));
        prop_assert_eq!(bits(&sparse.pull(&keys, expect).unwrap().values), expected);
    }
}

/// What torch's optimizers made of two weights: the output of `torch_weights.py`.
#[derive(Deserialize)]
struct Case {
    name: String,
    optimizer: Optimizer,
    gradients: Vec<Vec<f32>>,
    weights: Vec<Vec<f32>>,
}

#[test]
fn the_weights_of_torch() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("torch_weights.json")).unwrap();
    assert_eq!(cases.len(), 9);
    for case in cases {
        let running = Running::new(case.optimizer);
        let first = case.weights[0].clone();
        let mut store = SparseStore::new(Init::function(move |_, w| w.copy_from_slice(&first)));
        for (step, gradients) in case.gradients.iter().enumerate() {
            let lens = Lens::Uniform(gradients.len());
            store.push(&[7], lens, gradients, &running).unwrap();
            let found = store
                .pull(&[7], crate::core::store::Expected::Unknown)
                .unwrap();
            for (found, torch) in found.values.iter().zip(&case.weights[step + 1]) {
                // Torch fuses some operations. A few roundings of numbers up to 2 is all that may differ.
                let error = (found - torch).abs();
                let (name, step) = (&case.name, step + 1);
                assert!(
                    error <= 1e-6,
                    "{name}, step {step}: {found} and not {torch}"
                );
            }
        }
    }
}

#[test]
fn after_many_pushes_the_corrections_are_as_computed() {
    for optimizer in [
        Optimizer::adam(0.1),
        Optimizer {
            rule: Rule::Adam {
                beta1: 0.9,
                beta2: 0.99999,
                epsilon: 1e-8,
                decoupled: false,
            },
            ..Optimizer::adam(0.1)
        },
    ] {
        let running = Running::new(optimizer);
        let Rule::Adam { beta1, beta2, .. } = optimizer.rule else {
            unreachable!()
        };
        for step in [
            1,
            2,
            1000,
            36_000,
            65_535,
            65_536,
            70_000,
            1 << 30,
            u32::MAX,
        ] {
            assert_eq!(
                running.correction(step),
                correction(beta1, beta2, step),
                "{step}"
            );
        }
    }
}

#[test]
fn wrong_numbers_are_named() {
    let wrong = [
        (
            Optimizer::sgd(-1.0),
            "the learning rate of an optimizer must be 0 or more, not -1",
        ),
        (
            Optimizer::momentum(0.1, 1.0),
            "the momentum of an optimizer must be from 0 to below 1, not 1",
        ),
        (
            Optimizer::adamw(0.1, f64::NAN),
            "the weight decay of an optimizer must be 0 or more, not NaN",
        ),
    ];
    for (optimizer, text) in wrong {
        assert_eq!(optimizer.check().unwrap_err().to_string(), text);
    }
    let change = Change {
        learning_rate: Some(f64::INFINITY),
        weight_decay: None,
    };
    let mut running = Running::new(Optimizer::adam(0.1));
    assert!(running.change(change).is_err());
    assert_eq!(running.optimizer(), &Optimizer::adam(0.1));
}
