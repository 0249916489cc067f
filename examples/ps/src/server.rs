//! A server of an elastic job: it may join and leave while the job runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::Result;
use elasticrun_ps::{ElasticApp, ElasticServer, Options, Postoffice};
use nix::sys::signal::{SigSet, Signal};

/// How long the values may take to other servers.
const DRAIN: Duration = Duration::from_secs(60);

/// Serves until the job ends, or until SIGTERM: then its values go to other servers.
pub(crate) fn serve(options: Options) -> Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    // Before other threads are there: the one that waits for the signal is to get it.
    signals.thread_block()?;
    let postoffice = Postoffice::start(options)?;
    let server = ElasticServer::start(&postoffice, [ElasticApp::sums::<f32>(0)])?;
    let left = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (postoffice, left) = (postoffice.clone(), Arc::clone(&left));
        move || leave_when_told(&postoffice, &server, signals, &left)
    });
    match postoffice.finalize() {
        Err(_) if left.load(Ordering::SeqCst) => Ok(()),
        ended => Ok(ended?),
    }
}

fn leave_when_told(
    postoffice: &Postoffice,
    server: &ElasticServer,
    signals: SigSet,
    left: &AtomicBool,
) {
    while signals.wait().is_ok() {
        match server.drain(DRAIN) {
            Ok(()) => {
                println!("server {}: others have its values", postoffice.my_rank());
                left.store(true, Ordering::SeqCst);
                return postoffice.finalize_async();
            }
            Err(error) => eprintln!("ps-digits: goes on to serve: {error}"),
        }
    }
}
