//! The places of peers that have not proved themselves. A peer that stays silent gives way to others.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A bounded number of places. Peers that have sent something keep theirs.
///
/// A client of TLS speaks first, so an honest peer is silent for the time of its way at most.
#[derive(Debug)]
pub struct Handshakes {
    free: Arc<Semaphore>,
    silent: Arc<Silent>,
    /// The number of the next place.
    next: u64,
}

/// The peers that have sent nothing, in the order in which they came.
#[derive(Debug, Default)]
struct Silent(Mutex<BTreeMap<u64, Arc<Notify>>>);

impl Silent {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a peer, until it is dropped.
#[derive(Debug)]
pub struct Handshake {
    number: u64,
    silent: Arc<Silent>,
    gives_way: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Handshakes {
    /// So many places.
    pub fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            silent: Arc::default(),
            next: 0,
        }
    }

    /// Gives a peer that has connected a place. If there is none, the peer that has been silent for longest gives way; if all
    /// speak, this waits for the end of a handshake. Cancel-safe.
    pub async fn begin(&mut self) -> Handshake {
        let place = match self.free.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                if let Some((_, longest)) = self.silent.lock().pop_first() {
                    longest.notify_one();
                }
                let place = self.free.clone().acquire_owned().await;
                place.expect("the semaphore is never closed")
            }
        };
        let (number, gives_way) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        self.silent.lock().insert(number, gives_way.clone());
        Handshake {
            number,
            silent: self.silent.clone(),
            gives_way,
            _place: place,
        }
    }
}

impl Handshake {
    /// Waits until the peer has sent something: `readable` is done then. Gives `false` if it must give way.
    ///
    /// # Errors
    /// That of `readable`.
    pub async fn heard(&self, readable: impl Future<Output = io::Result<()>>) -> io::Result<bool> {
        let heard = tokio::select! {
            biased;
            readable = readable => readable.map(|()| true),
            () = self.gives_way.notified() => Ok(false),
        };
        self.silent.lock().remove(&self.number);
        heard
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.silent.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_longest_silent_peer_gives_way_and_one_that_speaks_does_not() {
        let mut places = Handshakes::new(3);
        let (speaks, first, second) = (
            places.begin().await,
            places.begin().await,
            places.begin().await,
        );
        assert!(speaks.heard(ready(Ok(()))).await.unwrap());
        let gives_way = async {
            assert!(!first.heard(pending()).await.unwrap());
            drop(first);
        };
        let (third, ()) = tokio::join!(places.begin(), gives_way);
        assert!(second.heard(ready(Ok(()))).await.unwrap());
        assert!(third.heard(ready(Ok(()))).await.unwrap());
        // All speak: the next one waits for the end of a handshake.
        let ends = async {
            tokio::task::yield_now().await;
            drop(speaks);
        };
        let (fourth, ()) = tokio::join!(places.begin(), ends);
        assert_eq!(fourth.silent.lock().len(), 1);
        drop((second, third, fourth));
        assert!(places.silent.lock().is_empty());
        assert_eq!(places.free.available_permits(), 3);
    }
}
