//! What must hold when nothing happens any more.

use super::world::{World, all_keys};
use crate::core::{ranges::KeyRange, store::Chunk};

impl World {
    /// Nothing is on its way, and nothing happens any more.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        for worker in &self.workers {
            if !worker.requests.open().is_empty() {
                return Err(format!("PS7: not answered: {:?}", worker.requests));
            }
        }
        if !self.draining.is_empty() {
            let drains: Vec<_> = self.draining.difference(&self.gone).collect();
            if !drains.is_empty() {
                return Err(format!("the drain of {drains:?} does not end"));
            }
        }
        let living = self
            .servers
            .keys()
            .filter(|node| !self.gone.contains(node))
            .count();
        let Some(map) = self.coordinator.map().cloned() else {
            return Err("there is no map".to_owned());
        };
        for range in &map.ranges {
            if range.chain.len() != self.copies.min(living) {
                return Err(format!("{range:?} has not {} copies", self.copies));
            }
            let mut contents = Vec::new();
            for node in &range.chain {
                let engine = self
                    .servers
                    .get_mut(node)
                    .ok_or("a dead server in a chain")?;
                contents.push(engine.contents(range.keys()));
            }
            if contents.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("the copies of {range:?} differ"));
            }
        }
        for key in all_keys() {
            let range = map.range_of(key);
            let tail = range.tail().and_then(|tail| self.servers.get_mut(&tail));
            let engine = tail.ok_or("a dead tail")?;
            let keys = KeyRange {
                first: key,
                last: key,
            };
            let chunk = &engine.contents(keys)[0];
            if let Some(reference) = &self.workers[0].reference {
                if *chunk != reference.export(keys, usize::MAX).chunk {
                    return Err(format!("key {key} is not as if it had never moved"));
                }
                continue;
            }
            let found = match chunk.is_empty() {
                true => Vec::new(),
                false => {
                    let chunk = Chunk::<i64>::decode(chunk);
                    chunk.map_err(|error| error.to_string())?.values().to_vec()
                }
            };
            let sum = self
                .book
                .acknowledged
                .get(&key)
                .copied()
                .unwrap_or_default();
            let expected = match sum.count {
                0 => Vec::new(),
                _ => vec![sum.count, sum.total],
            };
            if found != expected {
                return Err(format!(
                    "PS3, PS4: key {key} has {found:?}, expected {expected:?}"
                ));
            }
        }
        Ok(())
    }
}
