//! Measures a rendezvous of many local nodes: all join, one leaves, the others join again, and nothing happens for a while.
//!
//! `bench_nodes N [SECONDS]` prints one line of JSON. Each node has its own connection and its own thread, which are those of
//! `torchrun`. All of them and the server are in this process. With SECONDS, the nodes then stay in their round for so
//! long. The line then has the processor time of the server and of all threads meanwhile, and how many nodes lost their places.

use std::{
    env, fs,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use elasticrun_core::rendezvous::{Membership, NodeId, Settings};
use elasticrun_rendezvous::{Endpoint, Node, Server};

type Error = Box<dyn std::error::Error>;

/// The longest measurement.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let count = env::args().nth(1).and_then(|text| text.parse().ok());
    let Some(count) = count.filter(|count: &usize| *count >= 2) else {
        eprintln!("bench_nodes N: the number of nodes, at least 2");
        return ExitCode::from(2);
    };
    let rest = env::args().nth(2).map_or(Some(0), |text| text.parse().ok());
    let Some(rest) = rest.map(Duration::from_secs) else {
        eprintln!("bench_nodes N SECONDS: how long the nodes rest in their round");
        return ExitCode::from(2);
    };
    match measure(count, rest) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench_nodes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(count: usize, rest: Duration) -> Result<String, Error> {
    let any = Endpoint::parse("127.0.0.1:0")?;
    let server = Server::start(&any)?;
    let endpoint = any.with_port(server.address().port());
    // The last call is as long as in the other measurement. The others are the defaults, which are those of torch.
    let settings = Settings::new(count - 1, count)?.with("last_call_timeout", "1")?;
    let nodes = (0..count).map(|number| {
        let id = NodeId::new(&format!("node-{number}"))?;
        Ok(Node::start(
            endpoint.clone(),
            "bench",
            id,
            settings.clone(),
        )?)
    });
    let mut nodes = nodes.collect::<Result<Vec<_>, Error>>()?;
    let (joined, join_cpu) = timed(|| join(&nodes, count))?;
    let leaver = nodes.pop().ok_or("no nodes")?;
    let (rejoin, rejoin_cpu) = timed(|| {
        leaver.exit().wait().map_err(|error| error.to_string())?;
        for node in &nodes {
            let mut known = node.observed();
            while known.left == 0 {
                known = node.wait_for_change(&known, LIMIT);
            }
        }
        join(&nodes, count - 1)
    })?;
    let at_rest = at_rest(&nodes, rest)?;
    drop(nodes);
    Ok(format!(
        r#"{{"nodes":{count},"join_s":{joined:.3},"join_cpu_s":{join_cpu:.3},"rejoin_s":{rejoin:.3},"rejoin_cpu_s":{rejoin_cpu:.3}{at_rest}}}"#
    ))
}

/// Lets the nodes stay in their round, and gives the fields about it.
fn at_rest(nodes: &[Node], rest: Duration) -> Result<String, Error> {
    if rest.is_zero() {
        return Ok(String::new());
    }
    let server = server_cpu_seconds()?;
    let (_, cpu) = timed(|| {
        // The measurement is about this time.
        thread::sleep(rest);
        Ok(())
    })?;
    let server = server_cpu_seconds()? - server;
    let lost = |node: &&Node| node.observed().asks_to_join_again();
    let lost = nodes.iter().filter(lost).count();
    let seconds = rest.as_secs();
    Ok(format!(
        r#","rest_s":{seconds},"rest_cpu_s":{cpu:.3},"rest_server_cpu_s":{server:.3},"rest_lost_places":{lost}"#
    ))
}

/// Joins all nodes, from a thread for each of them.
fn join(nodes: &[Node], count: usize) -> Result<(), String> {
    let places = thread::scope(|scope| {
        let joins: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(|| node.join().wait()))
            .collect();
        let joined = joins.into_iter().map(|join| {
            let joined = join.join().map_err(|_| "a thread failed".to_owned())?;
            joined.map_err(|error| error.to_string())
        });
        joined.collect::<Result<Vec<Membership>, String>>()
    })?;
    let world_size = places.first().map_or(0, |place| place.world_size as usize);
    match world_size == count {
        true => Ok(()),
        false => Err(format!("{world_size} of {count} nodes are in the round")),
    }
}

/// The seconds that a call takes, of the clock and of the processors.
fn timed(call: impl FnOnce() -> Result<(), String>) -> Result<(f64, f64), Error> {
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    call()?;
    Ok((began.elapsed().as_secs_f64(), cpu_seconds()? - cpu))
}

/// The time that this process has used the processors for.
fn cpu_seconds() -> Result<f64, Error> {
    let used = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(used.user_time()) + seconds(used.system_time()))
}

/// The time that the thread of the server has used the processors for, to a hundredth of a second.
fn server_cpu_seconds() -> Result<f64, Error> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread may end meanwhile.
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim_end() != "elasticrun-rdzv" {
            continue;
        }
        let stat = fs::read_to_string(task.join("stat"))?;
        let (_, fields) = stat.rsplit_once(')').ok_or("no stat of a thread")?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let ticks = |field: Option<&str>| field.and_then(|text| text.parse::<u32>().ok());
        let (user, system) = (ticks(fields.next()), ticks(fields.next()));
        let ticks = user.zip(system).map(|(user, system)| user + system);
        return Ok(f64::from(ticks.ok_or("no times of a thread")?) / 100.0);
    }
    Err("the server has no thread".into())
}
