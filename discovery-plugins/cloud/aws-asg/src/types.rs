//! Accelerators of instance types. They do not change, so each type is queried once.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_ec2::types::{InstanceType, InstanceTypeInfo};
use elasticrun_plugin_sdk::PluginError;

use crate::{account::Account, error::classify};

/// The maximum number of types of a call.
const TYPES_PER_CALL: usize = 100;
const CALL: &str = "DescribeInstanceTypes";

/// Accelerators of the known types.
#[derive(Debug, Default)]
pub(crate) struct Types {
    known: BTreeMap<String, u32>,
}

impl Types {
    /// The accelerators of a type. `None` if it has none, or is unknown.
    pub(crate) fn accelerators(&self, kind: &str) -> Option<u32> {
        self.known.get(kind).copied().filter(|count| *count > 0)
    }

    /// Queries new types.
    pub(crate) async fn query<'a>(
        &mut self,
        account: &Account,
        kinds: impl Iterator<Item = &'a str>,
    ) -> Result<(), PluginError> {
        let new: BTreeSet<_> = kinds
            .filter(|kind| !self.known.contains_key(*kind))
            .collect();
        let new: Vec<_> = new.into_iter().collect();
        for kinds in new.chunks(TYPES_PER_CALL) {
            let types = kinds.iter().map(|kind| InstanceType::from(*kind)).collect();
            let mut pages = account
                .ec2
                .describe_instance_types()
                .set_instance_types(Some(types))
                .into_paginator()
                .items()
                .send();
            while let Some(info) = pages.next().await {
                let info = info.map_err(|error| classify(CALL, &account.place, error))?;
                if let Some(kind) = info.instance_type() {
                    self.known
                        .insert(kind.as_str().to_owned(), accelerators(&info));
                }
            }
        }
        Ok(())
    }
}

/// GPUs as programs see them, and Neuron cores. A type has only one kind.
fn accelerators(info: &InstanceTypeInfo) -> u32 {
    let gpus = info.gpu_info().map_or(&[][..], |info| info.gpus());
    let gpus = gpus
        .iter()
        .map(|gpu| whole(gpu.logical_gpu_count().or(gpu.count())));
    let neuron = info
        .neuron_info()
        .map_or(&[][..], |info| info.neuron_devices());
    let neuron = neuron.iter().map(|device| {
        let cores = device.core_info().and_then(|cores| cores.count());
        whole(device.count()).saturating_mul(whole(cores))
    });
    gpus.chain(neuron).fold(0, u32::saturating_add)
}

fn whole(count: Option<i32>) -> u32 {
    count
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::types::{
        GpuDeviceInfo, GpuInfo, NeuronDeviceCoreInfo, NeuronDeviceInfo, NeuronInfo,
    };

    fn gpu(count: i32, logical: Option<i32>) -> GpuInfo {
        let device = GpuDeviceInfo::builder()
            .count(count)
            .set_logical_gpu_count(logical)
            .build();
        GpuInfo::builder().gpus(device).build()
    }

    #[test]
    fn gpus_count_as_programs_see_them() {
        let counted = |gpus| accelerators(&InstanceTypeInfo::builder().gpu_info(gpus).build());
        assert_eq!(counted(gpu(8, None)), 8);
        assert_eq!(counted(gpu(1, Some(4))), 4);
        assert_eq!(counted(GpuInfo::builder().build()), 0);
        assert_eq!(accelerators(&InstanceTypeInfo::builder().build()), 0);
    }

    #[test]
    fn a_neuron_device_has_cores() {
        let cores = NeuronDeviceCoreInfo::builder().count(2).build();
        let device = NeuronDeviceInfo::builder()
            .count(16)
            .core_info(cores)
            .build();
        let info = NeuronInfo::builder().neuron_devices(device).build();
        let info = InstanceTypeInfo::builder().neuron_info(info).build();
        assert_eq!(accelerators(&info), 32);
    }
}
