//! `elasticrun hosts [--watch]`: what the sources say, what would be used, and why.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::mpsc::{Sender, channel},
    time::Instant,
};

use anyhow::Context as _;
use elasticrun_plugin_loader::{Failure, Running, Snapshot, Source as Polled, Update, merge};
use elasticrun_plugin_sdk::{Host, HostState, SlotsFrom};
use serde_json::{Value, json};

use super::line;
use crate::{
    cli::HostsRequest,
    config::{Hosts, SlotsPerHost, Source},
    discovery, exit,
};

/// What each source said last, by its place among the sources.
type Said = BTreeMap<usize, (String, Result<Snapshot, Failure>)>;

/// Asks all sources, once or until somebody ends it. Exit code 5 if one of them has failed, asked once.
pub(super) fn show(request: &HostsRequest, out: &mut impl Write) -> anyhow::Result<u8> {
    let began = Instant::now();
    let (sender, updates) = channel();
    let (running, count) = start(&request.hosts, &sender)?;
    drop(sender);
    let mut said = Said::new();
    while let Ok((place, update)) = updates.recv() {
        let known = (update.source, update.result);
        let news = said.get(&place) != Some(&known);
        said.insert(place, known);
        let all = said.len() == count;
        if request.watch && news || all && !request.watch {
            let shown = Shown {
                said: &said,
                newest: place,
                hosts: &request.hosts,
            };
            if request.json {
                let mut row = shown.json();
                row["ms"] = json!(u64::try_from(began.elapsed().as_millis())?);
                line(out, row)?;
            } else {
                shown.text(out)?;
            }
        }
        if all && !request.watch {
            break;
        }
    }
    drop(running);
    let failed = said.values().any(|(_, result)| result.is_err());
    Ok(if failed {
        exit::DISCOVERY_FAILED
    } else {
        exit::SUCCESS
    })
}

/// Starts the sources; says how many there are.
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
        let place = count;
        count += 1;
        if let Source::Fixed(hosts) = source {
            let hosts = hosts.iter().cloned().map(Host::from).collect();
            sender.send((
                place,
                Update {
                    source: "fixed".to_owned(),
                    result: Ok(Snapshot::new(hosts)),
                    at: Instant::now(),
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
        let polled = Polled::new(&spec.name, plugin, options)
            .settings(discovery::timing(settings))
            .start(Box::new(move |update| {
                // It fails when nobody wants to know any more.
                let _ = sender.send((place, update));
            }));
        running.push(polled.with_context(|| format!("--discovery {}", spec.name))?);
    }
    Ok((running, count))
}

struct Shown<'a> {
    said: &'a Said,
    /// Who said something new.
    newest: usize,
    hosts: &'a Hosts,
}

impl Shown<'_> {
    fn merged(&self) -> Vec<Host> {
        let good = self
            .said
            .values()
            .filter_map(|(_, result)| result.as_ref().ok());
        merge(good).hosts
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
            .said
            .values()
            .map(|(name, result)| match result {
                Ok(snapshot) => json!({"source": name, "hosts": snapshot.hosts.len()}),
                Err(failure) => json!({"source": name, "error": failure.message,
                    "kind": failure.kind.to_string()}),
            })
            .collect();
        let newest = self.said.get(&self.newest).map(|(name, _)| name);
        let hosts: Vec<_> = self.merged().iter().map(row).collect();
        json!({"newest": newest, "sources": sources, "hosts": hosts})
    }

    fn text(&self, out: &mut impl Write) -> anyhow::Result<()> {
        for (name, result) in self.said.values() {
            match result {
                Ok(snapshot) => {
                    let wanted = snapshot.target_size;
                    let wanted = wanted.map_or(String::new(), |size| format!(", {size} wanted"));
                    let count = snapshot.hosts.len();
                    line(out, format_args!("source {name}: {count} hosts{wanted}"))?;
                }
                Err(failure) => {
                    let kind = failure.kind;
                    line(out, format_args!("source {name}: {kind}: {failure}"))?;
                }
            }
        }
        for host in self.merged() {
            let (used, why) = verdict(&host);
            let at = match host.address == host.id {
                true => String::new(),
                false => host.address.clone(),
            };
            let slots = self.slots(&host);
            let used = if used { "used" } else { "not used" };
            line(
                out,
                format_args!("  {:20} {at:16} {slots:24} {used:8} {why}", host.id),
            )?;
        }
        Ok(())
    }

    /// How many slots, and who says so.
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
                format!("{slots} slots{from}")
            }
            (None, SlotsPerHost::Fixed(slots)) => format!("{slots} slots (--slots-per-host)"),
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
