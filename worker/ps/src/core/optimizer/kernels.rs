//! The loops of the optimizers. Each is over slices of one length, so that the compiler vectorises it; no operation is fused with
//! another, so the result does not depend on the machine.

use super::{Float, Optimizer, Rule};
use crate::core::{keys::Lens, store::Cells};

/// Applies gradients.
pub(super) fn step<T: Float>(
    optimizer: &Optimizer,
    cells: Cells<'_, T>,
    correction: impl Fn(u32) -> (f64, f64),
) {
    let (weights, gradients) = (cells.values, cells.pushed);
    let [first, second] = cells.state;
    let rate = T::from_f64(optimizer.learning_rate);
    let decay = optimizer.weight_decay;
    match optimizer.rule {
        Rule::Sgd => sgd(weights, gradients, rate, T::from_f64(decay)),
        Rule::Momentum { momentum, nesterov } => {
            let momentum = T::from_f64(momentum);
            let decay = T::from_f64(decay);
            match nesterov {
                true => nesterov_step(weights, first, gradients, rate, momentum, decay),
                false => momentum_step(weights, first, gradients, rate, momentum, decay),
            }
        }
        Rule::Adagrad { epsilon, .. } => {
            let epsilon = T::from_f64(epsilon);
            adagrad(weights, first, gradients, rate, epsilon, T::from_f64(decay));
        }
        Rule::Adam {
            beta1,
            beta2,
            epsilon,
            decoupled,
        } => {
            let (keep, shrink) = match decoupled {
                true => (0.0, 1.0 - optimizer.learning_rate * decay),
                false => (decay, 1.0),
            };
            let mut numbers = Adam {
                gain1: T::from_f64(1.0 - beta1),
                beta2: T::from_f64(beta2),
                gain2: T::from_f64(1.0 - beta2),
                epsilon: T::from_f64(epsilon),
                decay: T::from_f64(keep),
                shrink: T::from_f64(shrink),
                rate,
                root: rate,
            };
            // Neighbouring keys that were pushed equally often are one loop.
            let (mut key, mut at) = (0, 0);
            while key < cells.steps.len() {
                let before = cells.steps[key];
                let equal = cells.steps[key..]
                    .iter()
                    .take_while(|&&step| step == before);
                let count = equal.count();
                let now = before.saturating_add(1);
                cells.steps[key..key + count].fill(now);
                let len = match cells.lens {
                    Lens::Uniform(len) => len * count,
                    mixed => mixed.total(key, key + count),
                };
                let (bias1, root2) = correction(now);
                numbers.rate = T::from_f64(optimizer.learning_rate / bias1);
                numbers.root = T::from_f64(root2);
                let part = at..at + len;
                numbers.step(
                    &mut weights[part.clone()],
                    &mut first[part.clone()],
                    &mut second[part.clone()],
                    &gradients[part],
                );
                (key, at) = (key + count, at + len);
            }
        }
    }
}

fn sgd<T: Float>(weights: &mut [T], gradients: &[T], rate: T, decay: T) {
    for (w, &g) in weights.iter_mut().zip(gradients) {
        let g = g + decay * *w;
        *w = *w - rate * g;
    }
}

fn momentum_step<T: Float>(
    weights: &mut [T],
    kept: &mut [T],
    gradients: &[T],
    rate: T,
    momentum: T,
    decay: T,
) {
    for ((w, m), &g) in weights.iter_mut().zip(kept).zip(gradients) {
        let g = g + decay * *w;
        *m = momentum * *m + g;
        *w = *w - rate * *m;
    }
}

fn nesterov_step<T: Float>(
    weights: &mut [T],
    kept: &mut [T],
    gradients: &[T],
    rate: T,
    momentum: T,
    decay: T,
) {
    for ((w, m), &g) in weights.iter_mut().zip(kept).zip(gradients) {
        let g = g + decay * *w;
        *m = momentum * *m + g;
        *w = *w - rate * (g + momentum * *m);
    }
}

fn adagrad<T: Float>(
    weights: &mut [T],
    sums: &mut [T],
    gradients: &[T],
    rate: T,
    epsilon: T,
    decay: T,
) {
    for ((w, s), &g) in weights.iter_mut().zip(sums).zip(gradients) {
        let g = g + decay * *w;
        *s = *s + g * g;
        *w = *w - rate * g / (s.root() + epsilon);
    }
}

/// The numbers of Adam for keys that were pushed equally often.
struct Adam<T> {
    gain1: T,
    beta2: T,
    gain2: T,
    epsilon: T,
    decay: T,
    shrink: T,
    /// The learning rate, corrected.
    rate: T,
    /// The correction of the root.
    root: T,
}

impl<T: Float> Adam<T> {
    fn step(&self, weights: &mut [T], averages: &mut [T], squares: &mut [T], gradients: &[T]) {
        let state = averages.iter_mut().zip(squares);
        for ((w, (m, v)), &g) in weights.iter_mut().zip(state).zip(gradients) {
            let shrunk = *w * self.shrink;
            let g = g + self.decay * *w;
            *m = *m + self.gain1 * (g - *m);
            *v = self.beta2 * *v + self.gain2 * g * g;
            *w = shrunk - self.rate * *m / (v.root() / self.root + self.epsilon);
        }
    }
}
