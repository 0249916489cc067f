//! How much a range is used, and the key at which it would be cut in halves.

/// Keys that are kept to find the middle.
const SAMPLES: usize = 64;

/// The use of a range on one server since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// Keys of requests.
    pub(super) keys: u64,
    samples: Vec<u64>,
    requests: u64,
}

impl Load {
    /// Notes a request.
    pub(super) fn note(&mut self, keys: &[u64], _bytes: usize) {
        self.keys += keys.len() as u64;
        self.requests += 1;
        // Any key of the request, evenly over many requests.
        let any = (self.requests.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let key = keys[any % keys.len()];
        match self.samples.len() < SAMPLES {
            true => self.samples.push(key),
            false => self.samples[any % SAMPLES] = key,
        }
    }

    /// The key at which a half of the samples begins, if it is not the first of the range.
    pub(super) fn middle(&self, first: u64) -> Option<u64> {
        let mut samples = self.samples.clone();
        samples.sort_unstable();
        let middle = *samples.get(samples.len() / 2)?;
        (middle > first).then_some(middle)
    }
}
