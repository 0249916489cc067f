//! A handler that holds pulls back until they are not too stale.

use std::{
    fmt,
    marker::PhantomData,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_collectives::Element;

use crate::{
    command::{Command, Reply},
    core::{
        keys::Lens,
        node::{NodeId, Recipients, WORKER_GROUP},
        staleness::{Clocks, Staleness, Verdict},
        store::Expected,
    },
    error::Refusal,
    postoffice::Postoffice,
    server::{Handler, KvPairs, KvServer, RequestMeta},
};

/// Limits of what is held back.
#[derive(Clone, Copy, Debug)]
pub struct BoundedOptions {
    /// How long a pull may be held. It must be shorter than the request timeout of the workers, which would end the pull without
    /// the name of the slowest worker. It is looked at in each heartbeat interval.
    pub max_hold: Duration,
    /// Bytes of requests that may be held.
    pub max_bytes: usize,
}

/// Gives requests to another handler: pulls when their worker is not too far ahead of the slowest, all else at once. A push-pull
/// is held as a whole. Needs [`KvServer::with_commands`].
pub struct BoundedHandler<T, H> {
    inner: H,
    options: BoundedOptions,
    started: Instant,
    clocks: Mutex<Clocks<HeldPull<T>>>,
    values: PhantomData<fn() -> T>,
}

impl<T, H> fmt::Debug for BoundedHandler<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedHandler")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A request that is held, with its own copy of what it carries.
#[derive(Debug)]
struct HeldPull<T> {
    meta: RequestMeta,
    keys: Vec<u64>,
    values: Vec<T>,
    lens: OwnedLens,
    expected: Option<OwnedLens>,
    since: Duration,
}

#[derive(Debug)]
enum OwnedLens {
    Uniform(usize),
    Mixed(Vec<u32>),
}

impl OwnedLens {
    fn new(lens: Lens<'_>) -> Self {
        match lens {
            Lens::Uniform(len) => Self::Uniform(len),
            Lens::Mixed(lens) => Self::Mixed(lens.to_vec()),
        }
    }

    fn get(&self) -> Lens<'_> {
        match self {
            Self::Uniform(len) => Lens::Uniform(*len),
            Self::Mixed(lens) => Lens::Mixed(lens),
        }
    }
}

impl<T: Element> HeldPull<T> {
    fn new(meta: &RequestMeta, pairs: KvPairs<'_, T>, since: Duration) -> Self {
        Self {
            meta: meta.clone(),
            keys: pairs.keys.to_vec(),
            values: pairs.values.to_vec(),
            lens: OwnedLens::new(pairs.lens),
            expected: match pairs.expected {
                Expected::Unknown => None,
                Expected::Known(lens) => Some(OwnedLens::new(lens)),
            },
            since,
        }
    }

    fn pairs(&self) -> KvPairs<'_, T> {
        KvPairs {
            keys: &self.keys,
            values: &self.values,
            lens: self.lens.get(),
            expected: match &self.expected {
                Some(lens) => Expected::Known(lens.get()),
                None => Expected::Unknown,
            },
        }
    }
}

impl<T: Element, H: Handler<T>> BoundedHandler<T, H> {
    /// Bounds the staleness of what `inner` answers. The workers of the job begin at clock 0.
    pub fn new(postoffice: &Postoffice, staleness: Staleness, inner: H) -> Self {
        let options = BoundedOptions {
            max_hold: postoffice.node().options.request_timeout * 3 / 4,
            max_bytes: 256 << 20,
        };
        Self::with_options(postoffice, staleness, inner, options)
    }

    /// [`new`](Self::new) with other limits.
    pub fn with_options(
        postoffice: &Postoffice,
        staleness: Staleness,
        inner: H,
        options: BoundedOptions,
    ) -> Self {
        let (_, workers) = postoffice.node().counts();
        let members = Recipients::Group(WORKER_GROUP).node_ids(0, workers);
        Self {
            inner,
            options,
            started: Instant::now(),
            clocks: Mutex::new(Clocks::new(staleness, members, options.max_bytes)),
            values: PhantomData,
        }
    }

    /// The handler that answers.
    pub fn inner(&self) -> &H {
        &self.inner
    }

    /// The clocks of the workers.
    pub fn clocks(&self) -> Vec<(NodeId, u64)> {
        self.lock().clocks().collect()
    }

    /// Takes over the clocks of another server, in place of those here: this server is new, or has a part of the other's keys.
    pub fn set_clocks(
        &self,
        clocks: impl IntoIterator<Item = (NodeId, u64)>,
        server: &KvServer<T>,
    ) {
        let released = self.lock().take_over(clocks);
        self.serve(released, server);
    }

    /// Number of pulls that are held.
    pub fn held(&self) -> usize {
        self.lock().held()
    }

    fn lock(&self) -> MutexGuard<'_, Clocks<HeldPull<T>>> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, released: Vec<HeldPull<T>>, server: &KvServer<T>) {
        for pull in released {
            match server.recheck(&pull.meta) {
                Ok(()) => self.inner.handle(&pull.meta, pull.pairs(), server),
                Err(refusal) => server.refuse(&pull.meta, &refusal),
            }
        }
    }
}

impl<T: Element, H: Handler<T>> Handler<T> for BoundedHandler<T, H> {
    fn handle(&self, meta: &RequestMeta, pairs: KvPairs<'_, T>, server: &KvServer<T>) {
        let worker = meta.sender();
        if !meta.is_pull() || self.lock().may_go(worker) {
            return self.inner.handle(meta, pairs, server);
        }
        let now = self.started.elapsed();
        let pull = HeldPull::new(meta, pairs, now);
        let lens = match pairs.lens {
            Lens::Mixed(lens) => lens.len() * 4,
            Lens::Uniform(_) => 0,
        };
        let bytes =
            size_of::<HeldPull<T>>() + pairs.keys.len() * 8 + lens * 2 + size_of_val(pairs.values);
        let deadline = now + self.options.max_hold;
        let verdict = self.lock().pull(worker, pull, bytes, deadline);
        match verdict {
            Verdict::Held => {}
            Verdict::Go(pull) => self.serve(vec![pull], server),
            Verdict::Full(_) => {
                let max = self.options.max_bytes;
                let text = format!("more than {max} bytes of pulls wait for slower workers");
                server.refuse(meta, &Refusal::Handler(text));
            }
            Verdict::Gone(_) => {
                let text = format!("{worker} has left, or was declared dead");
                server.refuse(meta, &Refusal::Handler(text));
            }
        }
    }

    fn command(&self, from: NodeId, command: &Command, server: &KvServer<T>) -> Reply {
        match *command {
            Command::Join => Reply::Clock(self.lock().join(from)),
            Command::Tick { clock } => {
                let released = self.lock().tick(from, clock);
                match released {
                    Some(released) => {
                        self.serve(released, server);
                        Reply::Clock(clock)
                    }
                    None => Reply::Refused(format!("{from} has left, or was declared dead")),
                }
            }
            _ => self.inner.command(from, command, server),
        }
    }

    fn node_left(&self, node: NodeId, server: &KvServer<T>) {
        let released = self.lock().leave(node);
        self.serve(released, server);
        self.inner.node_left(node, server);
    }

    fn on_time(&self, server: &KvServer<T>) {
        let now = self.started.elapsed();
        let expired = self.lock().expire(now);
        for (pull, waits_for) in expired {
            let refusal = Refusal::Stale {
                slowest: waits_for.slowest,
                clock: waits_for.clock,
                needed: waits_for.needed,
                waited: now.saturating_sub(pull.since),
            };
            server.refuse(&pull.meta, &refusal);
        }
        self.inner.on_time(server);
    }
}
