//! A network of 64 inputs, 64 hidden units and 10 outputs, with its gradient computed explicitly.

use crate::data::{CLASSES, Digit, PIXELS};

const HIDDEN: usize = 64;

/// Number of parameters of the network, and of elements of its gradient.
pub const PARAMETERS: usize = HIDDEN * PIXELS + HIDDEN + CLASSES * HIDDEN + CLASSES;

/// The parts of a flat vector of parameters: weights (a row for each unit) and biases of both
/// layers.
struct Layers<'a> {
    hidden: &'a [f32],
    hidden_bias: &'a [f32],
    output: &'a [f32],
    output_bias: &'a [f32],
}

impl<'a> Layers<'a> {
    fn new(parameters: &'a [f32]) -> Self {
        let (hidden, rest) = parameters.split_at(HIDDEN * PIXELS);
        let (hidden_bias, rest) = rest.split_at(HIDDEN);
        let (output, output_bias) = rest.split_at(CLASSES * HIDDEN);
        Self {
            hidden,
            hidden_bias,
            output,
            output_bias,
        }
    }

    fn forward(&self, pixels: &[f32; PIXELS]) -> ([f32; HIDDEN], [f32; CLASSES]) {
        let mut hidden = [0.0; HIDDEN];
        let rows = self.hidden.chunks_exact(PIXELS).zip(self.hidden_bias);
        for (unit, (row, bias)) in hidden.iter_mut().zip(rows) {
            *unit = (dot(row, pixels) + bias).max(0.0);
        }
        let mut output = [0.0; CLASSES];
        let rows = self.output.chunks_exact(HIDDEN).zip(self.output_bias);
        for (unit, (row, bias)) in output.iter_mut().zip(rows) {
            *unit = dot(row, &hidden) + bias;
        }
        (hidden, output)
    }
}

/// Random parameters: uniform, scaled by the inputs of each layer. The same seed yields the same
/// parameters.
pub fn initial(seed: u64) -> Vec<f32> {
    let mut drawn = 0;
    let mut uniform = |bound: f32| {
        drawn += 1;
        // The upper 24 bits fill the mantissa.
        ((random(seed, drawn) >> 40) as f32 / (1 << 23) as f32 - 1.0) * bound
    };
    let mut parameters = vec![0.0; PARAMETERS];
    let (hidden, rest) = parameters.split_at_mut(HIDDEN * PIXELS + HIDDEN);
    hidden[..HIDDEN * PIXELS].fill_with(|| uniform((6.0 / PIXELS as f32).sqrt()));
    rest[..CLASSES * HIDDEN].fill_with(|| uniform((6.0 / HIDDEN as f32).sqrt()));
    parameters
}

/// The number at an index of a seed's random sequence: SplitMix64.
pub(crate) fn random(seed: u64, index: u64) -> u64 {
    let state = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Adds the gradient of a digit's loss (cross-entropy) to `gradient`. Returns the loss.
pub fn add_gradient(parameters: &[f32], digit: &Digit, gradient: &mut [f32]) -> f32 {
    let layers = Layers::new(parameters);
    let (hidden, output) = layers.forward(&digit.pixels);
    let highest = output.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exponents = output.map(|unit| (unit - highest).exp());
    let sum: f32 = exponents.iter().sum();
    let label = usize::from(digit.label);

    let (to_hidden, rest) = gradient.split_at_mut(HIDDEN * PIXELS);
    let (to_hidden_bias, rest) = rest.split_at_mut(HIDDEN);
    let (to_output, to_output_bias) = rest.split_at_mut(CLASSES * HIDDEN);
    let mut slopes = [0.0; HIDDEN];
    for (class, exponent) in exponents.iter().enumerate() {
        let slope = exponent / sum - f32::from(class == label);
        let row = class * HIDDEN..(class + 1) * HIDDEN;
        add(&mut to_output[row.clone()], &hidden, slope);
        add(&mut slopes, &layers.output[row], slope);
        to_output_bias[class] += slope;
    }
    for (unit, slope) in slopes.into_iter().enumerate() {
        if hidden[unit] > 0.0 {
            let row = unit * PIXELS..(unit + 1) * PIXELS;
            add(&mut to_hidden[row], &digit.pixels, slope);
            to_hidden_bias[unit] += slope;
        }
    }
    sum.ln() + highest - output[label]
}

/// The share of digits that the network classifies correctly, 0 to 1.
pub fn accuracy(parameters: &[f32], digits: &[Digit]) -> f64 {
    let layers = Layers::new(parameters);
    let right = digits.iter().filter(|digit| {
        let (_, output) = layers.forward(&digit.pixels);
        let best = (0..CLASSES).max_by(|a, b| output[*a].total_cmp(&output[*b]));
        best == Some(usize::from(digit.label))
    });
    right.count() as f64 / digits.len() as f64
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f32], values: &[f32], factor: f32) {
    for (to, value) in to.iter_mut().zip(values) {
        *to += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digit() -> Digit {
        Digit {
            pixels: std::array::from_fn(|pixel| (pixel % 5) as f32 / 4.0),
            label: 3,
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let parameters = initial(1);
        let mut gradient = vec![0.0; PARAMETERS];
        add_gradient(&parameters, &digit(), &mut gradient);
        let loss = |parameters: &[f32]| {
            f64::from(add_gradient(
                parameters,
                &digit(),
                &mut vec![0.0; PARAMETERS],
            ))
        };
        for index in (0..PARAMETERS)
            .step_by(97)
            .chain(PARAMETERS - 10..PARAMETERS)
        {
            let (mut above, mut below) = (parameters.clone(), parameters.clone());
            above[index] += 1e-2;
            below[index] -= 1e-2;
            let slope = (loss(&above) - loss(&below)) / 2e-2;
            let given = f64::from(gradient[index]);
            assert!(
                (slope - given).abs() < 2e-3 + 0.02 * given.abs(),
                "{index}: {slope} {given}"
            );
        }
    }

    #[test]
    fn the_start_is_random_and_the_same_for_a_seed() {
        assert_eq!(initial(1), initial(1));
        assert_ne!(initial(1), initial(2));
        let weights = &initial(1)[..HIDDEN * PIXELS];
        let mean = weights.iter().sum::<f32>() / weights.len() as f32;
        assert!(mean.abs() < 0.02, "{mean}");
    }
}
