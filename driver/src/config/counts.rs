//! Derives np, min_np, max_np and spares from those that are given.

use std::num::NonZeroU32;

use elasticrun_plugin_sdk::hosts::HostSpec;

use super::{
    error::Error,
    kinds::SlotsPerHost,
    replica_groups,
    settings::{Mode, Settings, Workers},
    table::Config,
};

/// Completes and checks the counts. With `discovers`, hosts may join that are not in `fixed`.
pub(super) fn workers(
    config: &Config,
    fixed: Option<&[HostSpec]>,
    discovers: bool,
) -> Result<Workers, Error> {
    let slots = if discovers {
        None
    } else {
        fixed.and_then(|hosts| total_slots(config, hosts))
    };
    let np = needed_workers(config, fixed, slots)?;
    let min_np = config.min_np.value.unwrap_or(np);
    if min_np > np {
        return Err(config.min_np.contradicts(
            "min-np",
            format!("expected at most {np}, the workers needed to start (-np)"),
        ));
    }
    let max_np = config.max_np.value.or((!discovers).then_some(np));
    if max_np.is_some_and(|max_np| max_np < np) {
        return Err(config.max_np.contradicts(
            "max-np",
            format!("expected at least {np}, the workers needed to start (-np)"),
        ));
    }
    if let Some(slots) = slots.filter(|slots| *slots < np) {
        return Err(config.np.contradicts(
            "np",
            format!("expected at most {slots}, the slots of the hosts given"),
        ));
    }
    check_spares(config, max_np, slots)?;
    check_multiple(config, np, min_np, max_np)?;
    Ok(Workers {
        np,
        min_np,
        max_np,
        spares: config.spares.value,
        replica_group_size: config.replica_group_size.value,
        size_multiple: config.size_multiple.value,
    })
}

/// Checks that rounds can have the counts that are given or follow from others.
fn check_multiple(
    config: &Config,
    np: NonZeroU32,
    min_np: NonZeroU32,
    max_np: Option<NonZeroU32>,
) -> Result<(), Error> {
    let (multiple, of) = replica_groups::multiple(config);
    let counts = [
        (Some(np), &config.np, "np"),
        (Some(min_np), &config.min_np, "min-np"),
        (max_np, &config.max_np, "max-np"),
    ];
    for (count, setting, key) in counts {
        let Some(count) = count.map(NonZeroU32::get) else {
            continue;
        };
        let below = count - count % multiple;
        if below == count {
            continue;
        }
        let above = below.saturating_add(multiple);
        let near = match below {
            0 => format!("{above}"),
            below => format!("{below} or {above}"),
        };
        let would = format!(
            "the job would have {count} workers; set -np, --min-np and --max-np to multiples of {multiple}, such as {near}"
        );
        return Err(match setting.is_given() {
            true => setting.contradicts(
                key,
                format!("expected a multiple of {multiple} of {of}, such as {near}"),
            ),
            false if config.size_multiple.is_given() => {
                config.size_multiple.contradicts("size-multiple", would)
            }
            false => (config.replica_group_size).contradicts("replica-group-size", would),
        });
    }
    Ok(())
}

/// A note about slots that no worker of an elastic job uses, although it could: without `--max-np`, fixed hosts get at most
/// `-np` workers. `None` if the slots of a host are detected on it.
pub(crate) fn idle_slots(config: &Config, settings: &Settings) -> Option<String> {
    let hosts = settings.hosts.fixed()?;
    if settings.mode != Mode::Elastic || config.max_np.value.is_some() {
        return None;
    }
    let total = total_slots(config, hosts)?;
    let workers = settings.workers;
    let used = workers.max_np?.get().saturating_add(workers.spares);
    let idle = total.get().checked_sub(used).filter(|idle| *idle > 0)?;
    let default = match config.slots_per_host.value {
        SlotsPerHost::Auto => 0,
        SlotsPerHost::Fixed(slots) => slots,
    };
    let mut left = used;
    let mut names = Vec::new();
    for host in hosts {
        let slots = host.slots.unwrap_or(default);
        if slots > left {
            names.push(host.id());
        }
        left = left.saturating_sub(slots);
    }
    let named = match names.as_slice() {
        [name] => format!("host {name}"),
        [first, second] => format!("hosts {first} and {second}"),
        names => format!(
            "hosts {}, {} and {} more",
            names[0],
            names[1],
            names.len() - 2
        ),
    };
    let max = workers.max_np?.get().saturating_add(idle);
    let verb = if idle == 1 { "stays" } else { "stay" };
    Some(format!(
        "{idle} of {total} slots {verb} idle ({named}): --max-np {max} uses them"
    ))
}

/// The slots of all hosts. `None` if the slots of a host are detected on it.
fn total_slots(config: &Config, hosts: &[HostSpec]) -> Option<NonZeroU32> {
    let default = match config.slots_per_host.value {
        SlotsPerHost::Auto => None,
        SlotsPerHost::Fixed(slots) => Some(slots),
    };
    let total = hosts.iter().try_fold(0_u32, |total, host| {
        Some(total.saturating_add(host.slots.or(default)?))
    })?;
    NonZeroU32::new(total)
}

fn needed_workers(
    config: &Config,
    fixed: Option<&[HostSpec]>,
    slots: Option<NonZeroU32>,
) -> Result<NonZeroU32, Error> {
    // On plain numbers: rustc 1.95.0 (LLVM 22.1.2) miscompiles the minimum of two NonZeroU32 in a map of an Option. The
    // result counts as Some although it is None.
    let max = config.max_np.value.map_or(u32::MAX, NonZeroU32::get);
    let all_slots = slots.map_or(0, NonZeroU32::get).min(max);
    config
        .np
        .value
        .or(NonZeroU32::new(all_slots))
        .or(config.min_np.value)
        .ok_or_else(|| Error::Missing {
            flag: "-np",
            why: match fixed {
                Some(_) => {
                    "the slots of the hosts are not given; expected -np N, or hosts as HOST:SLOTS"
                        .to_owned()
                }
                None => "expected -np N, the workers needed to start".to_owned(),
            },
        })
}

fn check_spares(
    config: &Config,
    max_np: Option<NonZeroU32>,
    slots: Option<NonZeroU32>,
) -> Result<(), Error> {
    let spares = config.spares.value;
    if spares == 0 {
        return Ok(());
    }
    let Some(max_np) = max_np else {
        return Err(config.spares.contradicts(
            "spares",
            "needs --max-np: without it every worker is used and none is spare",
        ));
    };
    match slots.map(|slots| slots.get().saturating_sub(max_np.get())) {
        Some(left) if left < spares => Err(config.spares.contradicts(
            "spares",
            format!(
                "expected at most {left}, the slots of the hosts given beyond --max-np {max_np}"
            ),
        )),
        _ => Ok(()),
    }
}
