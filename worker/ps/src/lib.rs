//! A parameter server: servers keep values by key, and workers push values to them and pull values from them, each at its own
//! pace. The words are those of ps-lite.
//!
//! ```no_run
//! use elasticrun_ps::{KvServer, KvWorker, Options, Postoffice, Role, SummingHandler};
//!
//! # fn main() -> Result<(), elasticrun_ps::Error> {
//! let postoffice = Postoffice::start(Options::from_env()?)?;
//! match postoffice.role() {
//!     Role::Scheduler => {}
//!     Role::Server => {
//!         KvServer::<f32>::new(&postoffice, 0, SummingHandler::default())?;
//!     }
//!     Role::Worker => {
//!         let kv = KvWorker::<f32>::new(&postoffice, 0, 0)?;
//!         let pushed = kv.push([1, 3, 5], [1.0, 2.0, 3.0])?;
//!         kv.wait(pushed)?;
//!         let pulled = kv.pull([1, 3, 5], 1)?.wait()?;
//!         println!("{:?}", pulled.values);
//!     }
//! }
//! postoffice.finalize()
//! # }
//! ```
//!
//! # Theory of operation
//! A [`Postoffice`] is a node: scheduler, server or worker. `core` decides everything and is pure; `net` moves bytes; `node` has
//! the threads and calls both. A request is sent by the thread that makes it, straight from its arrays. A server handles it on the
//! thread that received it. The values of a pull are received straight into its result.
//! In an elastic job ([`ElasticServer`]), the scheduler decides which servers have which keys, and requests are sent again if a
//! server is lost. docs/design/parameter-server.md describes the wire, elasticity, and what is still to come.
//!
//! # Invariants
//! - PS1 A request is completed once, by its answers or by an error. Its callback is called once.
//! - PS2 With resends, a message is handled once, however often it arrives.
//! - PS3 In an elastic job: an acknowledged push is lost only if all servers of its range die.
//! - PS4 A push is applied once on each range, whatever is sent again.
//! - PS5 Each range has one chain of servers in a version of the range map.
//! - PS6 A pull that begins when a push was acknowledged sees it.
//! - PS7 Nothing is waited for without a limit, and its end is a named error.
//! - PS8 A complete snapshot has each key once, with all pushes that were acknowledged before it began.
//!
//! # Not promised
//! Order among requests of different workers, or of different priorities. Secrecy: bytes are not encrypted. Without a [`Key`], whoever
//! reaches the ports of the nodes takes part; with one, whoever can change bytes on their way changes values.

/// The programs in the documentation for users are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/parameter-server.md")]
mod documentation {}

mod array;
mod bounded;
mod command;
mod control;
mod core;
mod customer;
pub mod dynamic;
mod elastic;
mod error;
mod in_flight;
mod net;
mod node;
mod optimizing;
mod options;
mod postoffice;
mod pull;
mod requests;
mod server;
mod simple;
mod snapshot;
mod summing;
mod variables;
mod worker;

pub use array::Array;
pub use bounded::{BoundedHandler, BoundedOptions};
pub use command::{Command, Reply};
pub use control::{ServerControl, WorkerClock};
pub use core::{
    frame::FrameError,
    keys::{KeyError, Lens},
    node::{
        ALL_NODES, Group, NodeId, Recipients, Role, SCHEDULER, SCHEDULER_GROUP, SERVER_GROUP,
        WORKER_GROUP,
    },
    opening::Key,
    optimizer::{Change, Float, Optimizer, OptimizerError, Rule},
    ranges::{KeyRange, RangeMap},
    slicer::{Parts, Slice, SliceError, parts_by_range, slices},
    staleness::Staleness,
    store::{
        Cells, Chunk, ChunkError, Combine, DenseStore, Expected, Found, Init, MAX_SLOTS,
        SparseStore, StateShape, Store, StoreError,
    },
    tracker::Timestamp,
};
pub use customer::{Callback, Customer};
pub use elastic::{ElasticApp, ElasticServer};
pub use elasticrun_collectives::{DType, Element};
pub use error::{Error, Refusal};
pub use in_flight::Pull;
pub use optimizing::OptimizingHandler;
pub use options::{Options, Snapshots};
pub use postoffice::Postoffice;
pub use pull::{Expect, Memory, Pulled};
pub use server::{Answer, Handler, KvPairs, KvServer, RequestMeta};
pub use simple::{RequestHandler, ResponseHandler, SimpleApp, SimpleData};
pub use summing::SummingHandler;
pub use worker::{KvWorker, RequestOptions, Slicer};
