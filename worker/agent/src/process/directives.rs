//! Variables of a job by which its driver tells agents how to start workers. They are part of [`Setup::env`], so an agent of an
//! earlier release passes them on to workers, which do not know them. Agents of this release keep them.

use std::{collections::BTreeMap, env, num::NonZeroU32};

use elasticrun_protocol::{LocalRank, control::Setup};

/// If it is set, each worker has `LOCAL_RANK` 0 and sees one device, that of its own local rank.
pub const VIRTUAL_LOCAL_RANK: &str = "_ELASTICRUN_VIRTUAL_LOCAL_RANK";

/// The CPUs that workers may use: `node`, `socket`, `exclusive` or `core-complex`.
pub const NUMA_BINDING: &str = "_ELASTICRUN_NUMA_BINDING";

/// The slots that each node of the job must offer. A node with another number is refused.
pub const NODE_SLOTS: &str = "_ELASTICRUN_NODE_SLOTS";

/// The variable that lists the devices that CUDA shows. Libraries of ROCm read it as well.
pub(super) const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The slots that each node of a job must offer. `None` for any number.
pub fn node_slots(setup: &Setup) -> Option<NonZeroU32> {
    setup.env.get(NODE_SLOTS)?.parse().ok()
}

/// What a driver says about the start of a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Directives {
    /// The worker sees its own device only.
    pub(crate) own_device: bool,
    /// [`NUMA_BINDING`]
    pub(crate) numa_binding: Option<String>,
    /// The devices of the host that workers may use, as `CUDA_VISIBLE_DEVICES` lists them. `None` for all.
    pub(crate) visible_devices: Option<String>,
}

impl Directives {
    /// Takes the directives out of the variables of a worker, and changes the variables that they are about.
    ///
    /// # Errors
    /// The host has no visible device for this local rank.
    pub(crate) fn take(
        variables: &mut BTreeMap<String, String>,
        local_rank: LocalRank,
    ) -> Result<Self, String> {
        Self::take_with(variables, local_rank, env::var(VISIBLE_DEVICES).ok())
    }

    /// As [`Directives::take`]. `inherited` is the agent's own `CUDA_VISIBLE_DEVICES`.
    fn take_with(
        variables: &mut BTreeMap<String, String>,
        local_rank: LocalRank,
        inherited: Option<String>,
    ) -> Result<Self, String> {
        variables.remove(NODE_SLOTS);
        let numa_binding = variables.remove(NUMA_BINDING);
        let own_device = variables.remove(VIRTUAL_LOCAL_RANK).is_some();
        let visible_devices = variables.get(VISIBLE_DEVICES).cloned().or(inherited);
        if own_device {
            let device = own_device_of(local_rank, visible_devices.as_deref())?;
            variables.insert(VISIBLE_DEVICES.to_owned(), device);
            variables.insert("LOCAL_RANK".to_owned(), "0".to_owned());
        }
        Ok(Self {
            own_device,
            numa_binding,
            visible_devices,
        })
    }
}

/// The device of a local rank, as torchrun chooses it: the entry of the list of visible devices, else the number.
fn own_device_of(local_rank: LocalRank, visible: Option<&str>) -> Result<String, String> {
    let Some(visible) = visible else {
        return Ok(local_rank.to_string());
    };
    let device = visible.split(',').nth(local_rank.0 as usize);
    let device = device.map(str::trim).filter(|device| !device.is_empty());
    device.map(str::to_owned).ok_or_else(|| {
        format!(
            "--virtual-local-rank: no device for local rank {local_rank} in {VISIBLE_DEVICES}={visible}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(
        env: &[(&str, &str)],
        local_rank: u32,
        inherited: Option<&str>,
    ) -> Result<(Directives, BTreeMap<String, String>), String> {
        let all = [("LOCAL_RANK", "7")].iter().chain(env);
        let mut all = all
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let rank = LocalRank(local_rank);
        let taken = Directives::take_with(&mut all, rank, inherited.map(str::to_owned))?;
        Ok((taken, all))
    }

    #[test]
    fn a_virtual_local_rank_is_0_and_its_device_is_the_only_one() {
        let virtual_rank = (VIRTUAL_LOCAL_RANK, "1");
        for (env, inherited, device) in [
            (vec![virtual_rank], None, "2"),
            (vec![virtual_rank], Some("4,5, 6 ,7"), "6"),
            (vec![virtual_rank], Some("GPU-a,GPU-b,GPU-c"), "GPU-c"),
            // A list of the job overrides that of the host.
            (
                vec![virtual_rank, (VISIBLE_DEVICES, "1,3,5")],
                Some("0"),
                "5",
            ),
        ] {
            let (taken, all) = take(&env, 2, inherited).expect("there is a device");
            assert!(taken.own_device);
            let expected = [(VISIBLE_DEVICES, device), ("LOCAL_RANK", "0")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(all, BTreeMap::from(expected));
        }
    }

    #[test]
    fn a_local_rank_without_a_device_is_refused() {
        for visible in ["0,1", "0,1,", ""] {
            let why = take(&[(VIRTUAL_LOCAL_RANK, "1")], 2, Some(visible)).expect_err("no device");
            assert_eq!(
                why,
                format!(
                    "--virtual-local-rank: no device for local rank 2 in CUDA_VISIBLE_DEVICES={visible}"
                )
            );
        }
    }

    #[test]
    fn workers_have_no_directives_and_otherwise_their_own_variables() {
        let (taken, all) =
            take(&[(NUMA_BINDING, "node"), (NODE_SLOTS, "4")], 2, Some("0,1")).expect("it is well");
        let expected = Directives {
            own_device: false,
            numa_binding: Some("node".to_owned()),
            visible_devices: Some("0,1".to_owned()),
        };
        assert_eq!(taken, expected);
        let rank = ("LOCAL_RANK".to_owned(), "7".to_owned());
        assert_eq!(all, BTreeMap::from([rank]));
    }
}
