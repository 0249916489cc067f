//! The places of peers that have not proved themselves. When all are taken, the slowest peer gives way to others.
//!
//! A handshake takes milliseconds, so peers that come at once do not displace each other. A stranger that speaks slowly keeps
//! its place for [`SLOW`] if others want it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

/// A peer that has taken so long gives way if there is need.
const SLOW: Duration = Duration::from_secs(2);

/// A bounded number of places. Peers that have proved themselves keep theirs.
#[derive(Debug)]
pub struct Handshakes {
    free: Arc<Semaphore>,
    unproven: Arc<Unproven>,
    /// The number of the next place.
    next: u64,
    slow: Duration,
}

/// The peers that have not proved themselves, in the order in which they came.
#[derive(Debug, Default)]
struct Unproven(Mutex<BTreeMap<u64, (Instant, Arc<Notify>)>>);

impl Unproven {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, Arc<Notify>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the longest of them began.
    fn longest(&self) -> Option<Instant> {
        self.lock().first_key_value().map(|(_, (began, _))| *began)
    }

    fn end_longest(&self) {
        if let Some((_, (_, gives_way))) = self.lock().pop_first() {
            gives_way.notify_one();
        }
    }
}

/// The place of a peer, until it is dropped.
#[derive(Debug)]
pub struct Handshake {
    number: u64,
    unproven: Arc<Unproven>,
    gives_way: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Handshakes {
    /// So many places.
    pub fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            unproven: Arc::default(),
            next: 0,
            slow: SLOW,
        }
    }

    /// Gives a peer that has connected a place. If there is none, this waits for the end of a handshake, or until the longest
    /// one is slow and gives way. Cancel-safe.
    pub async fn begin(&mut self) -> Handshake {
        let free = || self.free.clone().acquire_owned();
        let slow = async {
            match self.unproven.longest() {
                Some(began) => sleep_until(began + self.slow).await,
                None => std::future::pending().await,
            }
        };
        let place = tokio::select! {
            biased;
            place = free() => place,
            () = slow => {
                self.unproven.end_longest();
                free().await
            }
        };
        let (number, gives_way) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        (self.unproven.lock()).insert(number, (Instant::now(), gives_way.clone()));
        Handshake {
            number,
            unproven: self.unproven.clone(),
            gives_way,
            _place: place.expect("the semaphore is never closed"),
        }
    }
}

impl Handshake {
    /// The result of what the peer does to prove itself. `None` if it must give way to another one.
    pub async fn run<T>(&self, opening: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            result = opening => Some(result),
            () = self.gives_way.notified() => None,
        }
    }

    /// The peer has proved itself, and keeps its place.
    pub fn proved(&self) {
        self.unproven.lock().remove(&self.number);
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.proved();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_slow_peer_gives_way_and_one_that_has_proved_itself_does_not() {
        let mut places = Handshakes::new(3);
        places.slow = Duration::from_millis(20);
        let (proved, first, second) = (
            places.begin().await,
            places.begin().await,
            places.begin().await,
        );
        proved.proved();
        let began = Instant::now();
        let gives_way = async {
            assert_eq!(first.run(pending::<()>()).await, None);
            drop(first);
        };
        let (third, ()) = tokio::join!(places.begin(), gives_way);
        assert!(began.elapsed() >= places.slow / 2);
        for peer in [&second, &third] {
            assert_eq!(peer.run(ready(1)).await, Some(1));
            peer.proved();
        }
        // All have proved themselves: the next one waits for the end of a connection.
        let ends = async {
            tokio::time::sleep(Duration::from_millis(60)).await;
            drop(proved);
        };
        let (fourth, ()) = tokio::join!(places.begin(), ends);
        assert_eq!(fourth.unproven.lock().len(), 1);
        drop((second, third, fourth));
        assert!(places.unproven.lock().is_empty());
        assert_eq!(places.free.available_permits(), 3);
    }

    #[tokio::test]
    async fn peers_that_come_at_once_do_not_displace_each_other() {
        let mut places = Handshakes::new(4);
        let mut peers = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let place = places.begin().await;
            let handshake = || tokio::time::sleep(Duration::from_millis(10));
            peers.spawn(async move { place.run(handshake()).await });
        }
        assert!(peers.join_all().await.iter().all(Option::is_some));
    }
}
