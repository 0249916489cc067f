//! The settings of a run that torchrun's options stand for.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use elasticrun_agent::{NODE_SLOTS, NUMA_BINDING, VIRTUAL_LOCAL_RANK};

use super::{
    given::Given,
    nodes::{Nodes, Processes},
    options,
    rendezvous::{Place, Rendezvous, listen},
};
use crate::config::{Error, FlagWords, Setting as _, Streams, duration, variable};

/// How torchrun prefixes the lines of `--tee`.
const PREFIX: &str = "[${role_name}${local_rank}]:";

/// torchrun's time between SIGTERM and SIGKILL.
const SHUTDOWN: &str = "30";

/// How long agents wait for the driver of another node. Its lease in etcd is a third of that.
const ORPHAN_TIMEOUT: &str = "12";

/// The spelling of settings that no option of the user stands for: torchrun's habits.
const HABIT: &str = "torchrun";

type Flags = BTreeMap<&'static str, FlagWords>;

/// The settings as flags, each with the spelling of the option that it stands for.
///
/// # Errors
/// An option has a wrong value that no setting would refuse.
pub(super) fn flags(
    given: &Given,
    nodes: Nodes,
    processes: &Processes,
    rendezvous: &Rendezvous,
) -> Result<Flags, Error> {
    let mut flags = Flags::new();
    let mut set = |key: &'static str, spelled: String, words: Vec<String>| {
        flags.insert(key, FlagWords { spelled, words });
    };
    for key in ["max-restarts", "local-ranks-filter"] {
        if let Some(value) = given.value(key) {
            set(key, given.spelled(key), vec![value.clone()]);
        }
    }
    let key = "shutdown-timeout";
    match given.value(key) {
        Some(value) => set(key, given.spelled(key), vec![value.clone()]),
        None => set(key, HABIT.to_owned(), vec![SHUTDOWN.to_owned()]),
    }
    let variables = variables(given, processes, rendezvous)?;
    if !variables.is_empty() {
        let options = ["role", "rdzv-id", "virtual-local-rank", "numa-binding"];
        let given_one = options.into_iter().find(|name| given.is_set(name));
        let spelled = given.spelled(given_one.unwrap_or("nproc-per-node"));
        set("env", spelled, variables);
    }
    for (key, spelled, words) in output(given)? {
        set(key, spelled, words);
    }
    let per_node = processes.count.get();
    let of_nodes = |nodes: u32| vec![nodes.saturating_mul(per_node).to_string()];
    if rendezvous.place == Place::Alone {
        let spelled = match given.is_set("nproc-per-node") {
            true => given.spelled("nproc-per-node"),
            false => HABIT.to_owned(),
        };
        set("np", spelled, of_nodes(1));
        return Ok(flags);
    }
    for (key, spelled, words) in of_several(given, nodes, processes, rendezvous) {
        set(key, spelled, words);
    }
    if let Some(path) = given.value("join-token-file") {
        let key = "join-token-file";
        set(key, given.spelled(key), vec![path.clone()]);
    }
    for (key, spelled, words) in timeouts(given, &rendezvous.conf)? {
        set(key, spelled, words);
    }
    Ok(flags)
}

/// The settings of a job with several nodes. Nodes that the user numbers are fixed hosts, in this order.
fn of_several(
    given: &Given,
    nodes: Nodes,
    processes: &Processes,
    rendezvous: &Rendezvous,
) -> Vec<Flag> {
    let per_node = processes.count.get();
    let workers = |nodes: NonZeroU32| vec![nodes.get().saturating_mul(per_node).to_string()];
    let spelled = |name: &str| given.spelled(name);
    let mut flags = vec![
        ("np", spelled("nnodes"), workers(nodes.min)),
        ("launcher", spelled("nnodes"), vec!["agent".to_owned()]),
        // As with torchrun, each node has its own variables: its devices and interfaces may be others.
        ("worker-env", HABIT.to_owned(), vec!["host".to_owned()]),
        // Without waiting for workers that may attach to elasticrun.
        ("restart-mode", HABIT.to_owned(), vec!["process".to_owned()]),
    ];
    if let Some(driver) = rendezvous.driver() {
        let address = listen(driver).to_string();
        flags.push(("listen", spelled("rdzv-endpoint"), vec![address]));
    }
    if let Place::Elected { etcd, .. } = &rendezvous.place {
        let option = match given.is_set("rdzv") {
            true => "rdzv",
            false => "rdzv-endpoint",
        };
        flags.push(("journal", spelled(option), vec![etcd.to_string()]));
        // Agents wait for the next driver.
        let orphan = vec![ORPHAN_TIMEOUT.to_owned()];
        flags.push(("orphan-timeout", HABIT.to_owned(), orphan));
    }
    let are_numbered = matches!(
        &rendezvous.place,
        Place::First {
            node_rank: Some(_),
            ..
        } | Place::Other {
            node_rank: Some(_),
            ..
        }
    );
    if are_numbered {
        let hosts = (0..nodes.max.get()).map(|rank| format!("{}:{per_node}", host(rank)));
        let hosts: Vec<_> = hosts.collect();
        flags.push(("hosts", spelled("nnodes"), vec![hosts.join(",")]));
    } else {
        // As with torchrun, only the number of restarts limits failures.
        let none = vec!["0".to_owned(), "0".to_owned()];
        flags.extend([
            ("max-np", spelled("nnodes"), workers(nodes.max)),
            ("blacklist-cooldown-range", HABIT.to_owned(), none),
            ("max-host-failures", HABIT.to_owned(), vec!["0".to_owned()]),
        ]);
    }
    flags
}

/// The name of the host with this number.
pub(super) fn host(node_rank: u32) -> String {
    format!("node{node_rank}")
}

/// The role and the id of the job, for the workers, and how agents start these.
fn variables(
    given: &Given,
    processes: &Processes,
    rendezvous: &Rendezvous,
) -> Result<Vec<String>, Error> {
    let names = [("role", "ROLE_NAME"), ("rdzv-id", "TORCHELASTIC_RUN_ID")];
    let variable = |(option, name): (&str, &str)| {
        let value = given.value(option)?;
        (!value.is_empty()).then(|| format!("{name}={value}"))
    };
    let mut all: Vec<_> = names.into_iter().filter_map(variable).collect();
    if given.is_set("virtual-local-rank") {
        all.push(format!("{VIRTUAL_LOCAL_RANK}=1"));
    }
    let name = "numa-binding";
    if let Some(mode) = given.value(name) {
        let modes = ["node", "socket", "exclusive", "core-complex"];
        if !modes.contains(&mode.as_str()) {
            let why = "expected node, socket, exclusive or core-complex";
            return Err(given.refuse(name, why));
        }
        all.push(format!("{NUMA_BINDING}={mode}"));
    }
    if rendezvous.place != Place::Alone {
        all.push(format!("{NODE_SLOTS}={}", processes.count));
    }
    Ok(all)
}

type Flag = (&'static str, String, Vec<String>);

/// What is written where. Streams of `--tee` go to the console as well, those of `--redirects` do not.
fn output(given: &Given) -> Result<Vec<Flag>, Error> {
    let streams = |name: &str| match given.value(name) {
        None => Ok(Streams::NONE),
        Some(text) => Streams::read(std::slice::from_ref(text))
            .map_err(|allowed| given.refuse(name, format!("expected {allowed}"))),
    };
    let (redirects, tee) = (streams("redirects")?, streams("tee")?);
    let mut flags = Vec::new();
    let filters = ["duplicate-stdout-filters", "duplicate-stderr-filters"];
    let filters: Vec<_> = filters
        .into_iter()
        .filter_map(|name| Some((name, given.value(name)?)))
        .collect();
    let has_files = !(redirects.is_empty() && tee.is_empty() && filters.is_empty());
    match given.value("log-dir") {
        Some(directory) if has_files => flags.push((
            "output-filename",
            given.spelled("log-dir"),
            vec![directory.clone()],
        )),
        None if !redirects.is_empty() => {
            return Err(given.refuse("redirects", "needs --log-dir DIR, which gets these streams"));
        }
        None if !filters.is_empty() => {
            let why = "needs --log-dir DIR, where a file gets these lines";
            return Err(given.refuse(filters[0].0, why));
        }
        _ => {}
    }
    for (name, texts) in filters {
        flags.push((name, given.spelled(name), vec![texts.clone()]));
    }
    let hidden = redirects.without(&tee);
    if given.is_set("redirects")
        && let Some(toml::Value::String(hidden)) = hidden.show()
    {
        flags.push(("redirects", given.spelled("redirects"), vec![hidden]));
    }
    let name = "log-line-prefix-template";
    match tee.is_empty() {
        true => flags.push(("no-prefix", HABIT.to_owned(), vec!["true".to_owned()])),
        false => {
            let template = given.value(name).map(String::as_str);
            let template = template.filter(|text| !text.is_empty()).unwrap_or(PREFIX);
            flags.push((
                "line-prefix",
                given.spelled(name),
                vec![template.to_owned()],
            ));
        }
    }
    Ok(flags)
}

/// The keys of `--rdzv-conf` that are settings here.
fn timeouts(given: &Given, conf: &[(String, String)]) -> Result<Vec<Flag>, Error> {
    let value = |key: &str| {
        let given = conf.iter().find(|(name, _)| name == key);
        given.map(|(_, value)| value.clone())
    };
    let spelled = |key: &str| format!("{} {key}", given.spelled("rdzv-conf"));
    let mut flags = Vec::new();
    for (key, setting) in [
        ("join_timeout", "elastic-timeout"),
        ("last_call_timeout", "last-call"),
        ("keep_alive_interval", "heartbeat-interval"),
    ] {
        flags.extend(value(key).map(|value| (setting, spelled(key), vec![value])));
    }
    let key = "keep_alive_max_attempt";
    if let Some(attempts) = value(key) {
        let interval = value("keep_alive_interval");
        let interval = interval.as_deref().and_then(duration::parse);
        let interval = interval.unwrap_or(Duration::from_secs(1));
        let attempts: Option<u32> = attempts.parse().ok().filter(|attempts| *attempts > 1);
        let timeout = attempts.and_then(|attempts| interval.checked_mul(attempts));
        let timeout = timeout.filter(|timeout| *timeout <= duration::LONGEST);
        let timeout = timeout.ok_or_else(|| {
            given.refuse("rdzv-conf", format!("expected a number from 2 for {key}"))
        })?;
        flags.push((
            "heartbeat-timeout",
            spelled(key),
            vec![duration::show(timeout)],
        ));
    }
    Ok(flags)
}

/// Takes away torchrun's habits for which the user has set a variable of elasticrun.
pub(super) fn without_those_of(environment: &BTreeMap<String, String>, flags: &mut Flags) {
    const PREFIXES: [&str; 3] = ["no-prefix", "line-prefix", "prefix-output-with-timestamp"];
    let is_set = |key: &str| {
        let value = environment.get(&variable(key));
        value.is_some_and(|value| !value.trim().is_empty())
    };
    flags.retain(|key, words| {
        words.spelled != HABIT
            || match *key {
                "no-prefix" => !PREFIXES.into_iter().any(is_set),
                key => !is_set(key),
            }
    });
}

/// A line about the given options that change nothing. `None` if there are none.
pub(super) fn without_effect(given: &Given, rendezvous: &Rendezvous) -> Option<String> {
    const KEYS: [&str; 6] = [
        "join_timeout",
        "last_call_timeout",
        "keep_alive_interval",
        "keep_alive_max_attempt",
        "is_host",
        "close_timeout",
    ];
    let with_files = [
        "redirects",
        "tee",
        "duplicate-stdout-filters",
        "duplicate-stderr-filters",
    ];
    let has_files = with_files.iter().any(|name| given.is_set(name));
    let unused = ["log-dir"].into_iter().filter(|_| !has_files);
    let options = options::without_effect().chain(unused);
    let options = options.filter(|name| given.is_set(name));
    let options = options.map(|name| given.spelled(name));
    let keys = rendezvous.conf.iter().map(|(key, _)| key.as_str());
    let alone = rendezvous.place == Place::Alone;
    let keys = keys.filter(|key| !alone && !KEYS.contains(key));
    let keys = keys.map(|key| format!("{} {key}", given.spelled("rdzv-conf")));
    let all: Vec<_> = options.chain(keys).collect();
    (!all.is_empty()).then(|| format!("without effect in elasticrun: {}", all.join(", ")))
}
