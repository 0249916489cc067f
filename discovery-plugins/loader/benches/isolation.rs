//! The cost of isolation: starting a plugin's process, polling it, and polling in this process.
//!
//! `cargo bench -p elasticrun-plugin-loader`. Each figure is of many runs. The median matters most.

use std::{
    env,
    time::{Duration, Instant},
};

use elasticrun_plugin_loader::{Catalog, HostProgram, Plugin, SearchPath};
use serde_json::{Map, Value};

const PLENTY: Duration = Duration::from_secs(30);
/// Hosts in a list.
const SIZES: [usize; 2] = [4, 1000];

fn main() {
    // Cargo passes arguments that are not for this benchmark.
    let here = Catalog::default();
    let apart = Catalog::new(SearchPath {
        given: vec![libraries()],
        usual: vec![],
    })
    .isolated(HostProgram {
        program: env!("CARGO_BIN_EXE_elasticrun-serve-plugin").into(),
        arguments: vec![],
    });
    let [here, apart] = [here, apart].map(|mut catalog| catalog.find("static").expect("static"));
    measure("start of a process, create, and its end", 200, || {
        drop(start(&apart, 4));
    });
    measure("the same in this process", 200, || drop(start(&here, 4)));
    for size in SIZES {
        let mut live = start(&apart, size);
        measure(
            &format!("poll of {size} hosts through a process"),
            5000,
            || {
                live.poll(PLENTY).expect("a list");
            },
        );
        let mut live = start(&here, size);
        measure(
            &format!("poll of {size} hosts in this process"),
            5000,
            || {
                live.poll(PLENTY).expect("a list");
            },
        );
    }
}

/// The directory of the libraries that cargo builds for the dependencies: that of this program.
fn libraries() -> std::path::PathBuf {
    let program = env::current_exe().expect("the path of this program");
    program.parent().expect("a directory").to_owned()
}

fn start(plugin: &Plugin, hosts: usize) -> elasticrun_plugin_loader::Live {
    let hosts: Vec<_> = (0..hosts).map(|host| format!("host-{host}:8")).collect();
    let options = Map::from_iter([("hosts".to_owned(), Value::from(hosts.join(",")))]);
    plugin
        .start(&options, PLENTY, Box::new(|| ()))
        .expect("an instance")
}

fn measure(what: &str, times: usize, mut run: impl FnMut()) {
    let mut took: Vec<_> = (0..times)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed()
        })
        .collect();
    took.sort_unstable();
    let percentile = |share: f64| took[(share * (times - 1) as f64) as usize];
    println!(
        "{what:44} median {:>9.1?}  p99 {:>9.1?}",
        percentile(0.5),
        percentile(0.99)
    );
}
