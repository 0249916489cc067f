//! Optimizers: a push is a gradient, and changes weights.
//!
//! Only the keys of a push change. So momentum, the averages of Adam and the decay of weights rest while a key is not pushed, and
//! Adam counts the pushes of each key. The formulas are those of `torch.optim`, in the type of the weights: each operation
//! is rounded, and none is fused.

mod float;
mod kernels;

pub use float::Float;
use serde::{Deserialize, Serialize};

use super::store::{Cells, Combine, MAX_SLOTS, StateShape};

/// How a gradient changes weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// `w -= rate * g`.
    Sgd,
    /// `m = momentum * m + g`, and `w -= rate * m`; with Nesterov `w -= rate * (g + momentum * m)`.
    Momentum {
        /// What is kept of the last step.
        momentum: f64,
        /// Whether to look ahead.
        nesterov: bool,
    },
    /// `s += g * g`, and `w -= rate * g / (sqrt(s) + epsilon)`.
    Adagrad {
        /// With what the sums begin.
        initial: f64,
        /// Added to the root.
        epsilon: f64,
    },
    /// Averages of gradients and of their squares, both corrected for their start with zero.
    Adam {
        /// What is kept of the average of gradients.
        beta1: f64,
        /// What is kept of the average of squares.
        beta2: f64,
        /// Added to the root.
        epsilon: f64,
        /// Whether weights decay by themselves, and not as a part of the gradient: AdamW.
        decoupled: bool,
    },
}

/// An optimizer and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimizer {
    /// The rule.
    pub rule: Rule,
    /// The learning rate.
    pub learning_rate: f64,
    /// The decay of weights. The decay of what is not pushed rests.
    pub weight_decay: f64,
}

/// Numbers that change while a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The learning rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// The decay of weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
}

/// Why an optimizer is refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name} of an optimizer must be {expected}, not {value}")]
pub struct OptimizerError {
    /// What is wrong.
    pub name: &'static str,
    /// What it must be.
    pub expected: &'static str,
    /// What it is.
    pub value: f64,
}

impl Optimizer {
    fn new(rule: Rule, learning_rate: f64) -> Self {
        Self {
            rule,
            learning_rate,
            weight_decay: 0.0,
        }
    }

    /// Stochastic gradient descent.
    pub fn sgd(learning_rate: f64) -> Self {
        Self::new(Rule::Sgd, learning_rate)
    }

    /// Stochastic gradient descent with momentum.
    pub fn momentum(learning_rate: f64, momentum: f64) -> Self {
        let nesterov = false;
        Self::new(Rule::Momentum { momentum, nesterov }, learning_rate)
    }

    /// Adagrad with the numbers of torch.
    pub fn adagrad(learning_rate: f64) -> Self {
        let (initial, epsilon) = (0.0, 1e-10);
        Self::new(Rule::Adagrad { initial, epsilon }, learning_rate)
    }

    /// Adam with the numbers of torch.
    pub fn adam(learning_rate: f64) -> Self {
        let rule = Rule::Adam {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decoupled: false,
        };
        Self::new(rule, learning_rate)
    }

    /// Adam whose weights decay by themselves.
    pub fn adamw(learning_rate: f64, weight_decay: f64) -> Self {
        let rule = Rule::Adam {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decoupled: true,
        };
        Self {
            weight_decay,
            ..Self::new(rule, learning_rate)
        }
    }

    /// Sets the decay of weights.
    #[must_use]
    pub fn with_weight_decay(self, weight_decay: f64) -> Self {
        Self {
            weight_decay,
            ..self
        }
    }

    /// Refuses numbers that no optimizer has.
    ///
    /// # Errors
    /// The first wrong number.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let at_least_0 = |name, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => Err(OptimizerError {
                name,
                expected: "0 or more",
                value,
            }),
        };
        let below_1 = |name, value: f64| match (0.0..1.0).contains(&value) {
            true => Ok(()),
            false => Err(OptimizerError {
                name,
                expected: "from 0 to below 1",
                value,
            }),
        };
        at_least_0("the learning rate", self.learning_rate)?;
        at_least_0("the weight decay", self.weight_decay)?;
        match self.rule {
            Rule::Sgd => Ok(()),
            Rule::Momentum { momentum, .. } => below_1("the momentum", momentum),
            Rule::Adagrad { initial, epsilon } => {
                at_least_0("the initial sum", initial)?;
                at_least_0("epsilon", epsilon)
            }
            Rule::Adam {
                beta1,
                beta2,
                epsilon,
                ..
            } => {
                below_1("beta1", beta1)?;
                below_1("beta2", beta2)?;
                at_least_0("epsilon", epsilon)
            }
        }
    }

    /// The optimizer after a change.
    ///
    /// # Errors
    /// The change has a wrong number.
    pub fn changed(&self, change: Change) -> Result<Self, OptimizerError> {
        let changed = Self {
            learning_rate: change.learning_rate.unwrap_or(self.learning_rate),
            weight_decay: change.weight_decay.unwrap_or(self.weight_decay),
            ..*self
        };
        changed.check().map(|()| changed)
    }
}

/// Corrections of Adam's averages are kept for so many pushes of a key; later ones are computed each time, or are 1.
const MAX_CORRECTIONS: u32 = 1 << 16;

/// An optimizer in use.
#[derive(Debug)]
pub(crate) struct Running {
    optimizer: Optimizer,
    /// `1 - beta1^t` and the root of `1 - beta2^t`, by the number of pushes.
    corrections: Vec<(f64, f64)>,
}

impl Running {
    pub(crate) fn new(optimizer: Optimizer) -> Self {
        let mut corrections = Vec::new();
        if let Rule::Adam { beta1, beta2, .. } = optimizer.rule {
            let each = (0..MAX_CORRECTIONS).map(|step| correction(beta1, beta2, step));
            for found in each {
                corrections.push(found);
                if found == (1.0, 1.0) {
                    break;
                }
            }
        }
        Self {
            optimizer,
            corrections,
        }
    }

    pub(crate) fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// Changes the numbers. The rule stays.
    pub(crate) fn change(&mut self, change: Change) -> Result<(), OptimizerError> {
        self.optimizer = self.optimizer.changed(change)?;
        Ok(())
    }

    fn correction(&self, step: u32) -> (f64, f64) {
        let known = self.corrections.get(step as usize).copied();
        known.unwrap_or_else(|| match (self.optimizer.rule, self.corrections.last()) {
            (_, Some(&(1.0, 1.0))) => (1.0, 1.0),
            (Rule::Adam { beta1, beta2, .. }, _) => correction(beta1, beta2, step),
            _ => (1.0, 1.0),
        })
    }
}

fn correction(beta1: f64, beta2: f64, step: u32) -> (f64, f64) {
    let step = i32::try_from(step).unwrap_or(i32::MAX);
    (1.0 - beta1.powi(step), (1.0 - beta2.powi(step)).sqrt())
}

impl<T: Float> Combine<T> for &Running {
    fn state(&self) -> StateShape<T> {
        let zero = [T::zeroed(); MAX_SLOTS];
        let (slots, initial, counted) = match self.optimizer.rule {
            Rule::Sgd => (0, zero, false),
            Rule::Momentum { .. } => (1, zero, false),
            Rule::Adagrad { initial, .. } => (1, [T::from_f64(initial); MAX_SLOTS], false),
            Rule::Adam { .. } => (2, zero, true),
        };
        StateShape {
            slots,
            initial,
            counted,
        }
    }

    fn combine(&self, cells: Cells<'_, T>) {
        kernels::step(&self.optimizer, cells, |step| self.correction(step));
    }
}

#[cfg(test)]
mod tests;
