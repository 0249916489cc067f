//! Ten logistic regressions: each tells one digit from all others.

use elasticrun_ps::Array;

use crate::data::Image;

/// Weights of a feature: one for each digit.
pub(crate) const CLASSES: usize = 10;

/// The weights of some features.
#[derive(Debug)]
pub(crate) struct Weights {
    /// The features, in ascending order.
    pub(crate) keys: Array<u64>,
    /// [`CLASSES`] for each feature.
    pub(crate) values: Vec<f32>,
}

impl Weights {
    /// Where the weights of each feature of an image are, and how much of the feature it has.
    fn places(&self, image: &Image) -> impl Iterator<Item = (usize, f32)> {
        let features = image.features.iter();
        features.filter_map(|(key, value)| {
            let index = self.keys.binary_search(key).ok()?;
            Some((index * CLASSES, *value))
        })
    }

    fn scores(&self, image: &Image) -> [f32; CLASSES] {
        let mut scores = [0.0; CLASSES];
        for (place, value) in self.places(image) {
            let weights = &self.values[place..place + CLASSES];
            scores
                .iter_mut()
                .zip(weights)
                .for_each(|(score, weight)| *score += weight * value);
        }
        scores
    }

    /// The digit that an image most likely shows.
    pub(crate) fn read(&self, image: &Image) -> usize {
        let scores = self.scores(image);
        let best = (0..CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        best.unwrap_or(0)
    }

    /// What a step of gradient descent adds to the weights.
    pub(crate) fn step(&self, images: &[&Image], rate: f32) -> Vec<f32> {
        let mut step = vec![0.0; self.values.len()];
        for image in images {
            let scores = self.scores(image);
            let errors: [f32; CLASSES] = std::array::from_fn(|digit| {
                let likely = 1.0 / (1.0 + (-scores[digit]).exp());
                let target = if digit == image.digit { 1.0 } else { 0.0 };
                target - likely
            });
            for (place, value) in self.places(image) {
                let weights = &mut step[place..place + CLASSES];
                (weights.iter_mut().zip(errors))
                    .for_each(|(weight, error)| *weight += rate * error * value);
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{images, is_for_test};

    #[test]
    fn it_learns_without_servers() {
        let images = images().unwrap();
        let mut keys: Vec<u64> = images
            .iter()
            .flat_map(|image| image.features.iter().map(|(key, _)| *key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let mut weights = Weights {
            values: vec![0.0; keys.len() * CLASSES],
            keys: keys.into(),
        };
        let (test, train): (Vec<_>, Vec<_>) =
            (images.iter().enumerate()).partition(|(row, _)| is_for_test(*row));
        let train: Vec<&Image> = train.into_iter().map(|(_, image)| image).collect();
        for _epoch in 0..10 {
            for batch in train.chunks(8) {
                let step = weights.step(batch, 0.05);
                (weights.values.iter_mut().zip(step)).for_each(|(weight, added)| *weight += added);
            }
        }
        let right = (test.iter()).filter(|(_, image)| weights.read(image) == image.digit);
        let share = right.count() as f64 / test.len() as f64;
        assert!(share > 0.94, "{share}");
    }
}
