//! `elasticrun hosts [--watch]`: prints the answers of the sources, the hosts that would be used, and why.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::mpsc::{Sender, channel},
    time::Instant,
};

use anyhow::Context as _;
use elasticrun_plugin_loader::{Failure, Running, Snapshot, Source as PluginSource, Update, merge};
use elasticrun_plugin_sdk::{Host, HostState, SlotsFrom};
use serde_json::{Value, json};

use super::line;
use crate::{
    cli::HostsRequest,
    config::{Hosts, SlotsPerHost, Source},
    discovery, exit,
    report::count,
};

/// The last answer of each source, with its name, by its index among the sources.
type Answers = BTreeMap<usize, (String, Result<Snapshot, Failure>)>;

/// Polls all sources, once or until the process is ended. The exit code is 5 if a source fails.
pub(super) fn show(request: &HostsRequest, out: &mut impl Write) -> anyhow::Result<u8> {
    let began = Instant::now();
    let (sender, updates) = channel();
    let (running, count) = start(&request.hosts, &sender)?;
    drop(sender);
    let mut answers = Answers::new();
    while let Ok((index, update)) = updates.recv() {
        let answer = (update.source, update.result);
        let has_changed = answers.get(&index) != Some(&answer);
        answers.insert(index, answer);
        let all = answers.len() == count;
        if request.watch && has_changed || all && !request.watch {
            let view = View {
                answers: &answers,
                newest: index,
                hosts: &request.hosts,
            };
            if request.json {
                let mut row = view.json();
                row["ms"] = json!(u64::try_from(began.elapsed().as_millis())?);
                line(out, row)?;
            } else {
                view.text(out)?;
            }
        }
        if all && !request.watch {
            break;
        }
    }
    drop(running);
    let failed = answers.values().any(|(_, result)| result.is_err());
    Ok(if failed {
        exit::DISCOVERY_FAILED
    } else {
        exit::SUCCESS
    })
}

/// Starts the sources. Also returns their number.
fn start(
    settings: &Hosts,
    sender: &Sender<(usize, Update)>,
) -> anyhow::Result<(Vec<Running>, usize)> {
    let mut catalog = discovery::catalog(
        &settings.plugin_dirs,
        settings.plugin_isolation,
        &settings.plugin_allow,
    );
    let mut running = Vec::new();
    let mut count = 0;
    for source in &settings.sources {
        let index = count;
        count += 1;
        if let Source::Fixed(hosts) = source {
            let hosts = hosts.iter().cloned().map(Host::from).collect();
            sender.send((
                index,
                Update {
                    source: "fixed".to_owned(),
                    result: Ok(Snapshot::new(hosts)),
                    at: Instant::now(),
                    next: None,
                },
            ))?;
            continue;
        }
        let Some(spec) = discovery::spec(source)? else {
            anyhow::bail!("agents that register themselves are known to a running job only");
        };
        let (plugin, options) = catalog
            .source(&spec)
            .with_context(|| format!("--discovery {}", spec.name))?;
        let sender = sender.clone();
        let polled = PluginSource::new(&spec.name, plugin, options)
            .settings(discovery::timing(settings))
            .start(Box::new(move |update| {
                // Fails after the receiver is dropped.
                let _ = sender.send((index, update));
            }));
        running.push(polled.with_context(|| format!("--discovery {}", spec.name))?);
    }
    Ok((running, count))
}

/// The current answers, as they are printed.
struct View<'a> {
    answers: &'a Answers,
    /// Index of the source with the newest answer.
    newest: usize,
    hosts: &'a Hosts,
}

impl View<'_> {
    fn merged(&self) -> Vec<Host> {
        let snapshots = self
            .answers
            .values()
            .filter_map(|(_, result)| result.as_ref().ok());
        merge(snapshots).hosts
    }

    fn json(&self) -> Value {
        let row = |host: &Host| {
            let mut row = json!(host);
            let (used, why) = verdict(host);
            row["used"] = used.into();
            row["why"] = why.into();
            row
        };
        let sources: Vec<_> = self
            .answers
            .values()
            .map(|(name, result)| match result {
                Ok(snapshot) => json!({"source": name, "hosts": snapshot.hosts.len()}),
                Err(failure) => json!({"source": name, "error": failure.message,
                    "kind": failure.kind.to_string()}),
            })
            .collect();
        let newest = self.answers.get(&self.newest).map(|(name, _)| name);
        let hosts: Vec<_> = self.merged().iter().map(row).collect();
        json!({"newest": newest, "sources": sources, "hosts": hosts})
    }

    fn text(&self, out: &mut impl Write) -> anyhow::Result<()> {
        for (name, result) in self.answers.values() {
            match result {
                Ok(snapshot) => {
                    let wanted = snapshot.target_size;
                    let wanted = wanted.map_or(String::new(), |size| format!(", {size} wanted"));
                    let hosts = count(snapshot.hosts.len(), "host");
                    line(out, format_args!("source {name}: {hosts}{wanted}"))?;
                }
                Err(failure) => {
                    let kind = failure.kind;
                    line(out, format_args!("source {name}: {kind}: {failure}"))?;
                }
            }
        }
        for host in self.merged() {
            let (used, why) = verdict(&host);
            let address = match host.address == host.id {
                true => String::new(),
                false => host.address.clone(),
            };
            let slots = self.slots(&host);
            let used = if used { "used" } else { "not used" };
            line(
                out,
                format_args!("  {:20} {address:16} {slots:24} {used:8} {why}", host.id),
            )?;
        }
        Ok(())
    }

    /// The number of slots and its origin.
    fn slots(&self, host: &Host) -> String {
        match (host.slots, self.hosts.slots_per_host) {
            (Some(slots), _) => {
                let from = match host.slots_from {
                    Some(SlotsFrom::Explicit) => " (given)",
                    Some(SlotsFrom::Label) => " (label)",
                    Some(SlotsFrom::Accelerators) => " (accelerators)",
                    Some(SlotsFrom::Probe) => " (probe)",
                    Some(SlotsFrom::Other) | None => "",
                };
                format!("{}{from}", count(slots as usize, "slot"))
            }
            (None, SlotsPerHost::Fixed(slots)) => {
                format!("{} (--slots-per-host)", count(slots as usize, "slot"))
            }
            (None, SlotsPerHost::Auto) => "slots by its GPUs".to_owned(),
        }
    }
}

/// Whether a host would be used, and why.
fn verdict(host: &Host) -> (bool, String) {
    let (used, state) = match host.state {
        HostState::Ready => (true, "ready"),
        HostState::Pending => (false, "not ready yet"),
        HostState::Draining => (false, "will go away"),
        HostState::Gone => (false, "gone"),
    };
    let mut why = state.to_owned();
    if let Some(deadline) = host.deadline {
        why += &format!(" in {deadline:?}");
    }
    if let Some(reason) = &host.reason {
        why += &format!(": {reason}");
    }
    if host.spot {
        why += ", spot";
    }
    (used, why)
}
