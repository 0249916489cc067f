//! Slots of nodes, from the environment of a Slurm job. Pure.

use elasticrun_plugin_sdk::{SlotsFrom, hosts::MAX_SLOTS};

/// The environment, by name.
pub(crate) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Slots of the nodes, in the order of the job's node list.
///
/// Tasks count if the user requested them, since without `--ntasks` or `--ntasks-per-node` Slurm sets a number by itself. Else
/// GPUs count. One task on each node is how agents are started, so GPUs count then as well, if there are several.
pub(crate) fn slots(env: Env<'_>, nodes: usize) -> Vec<Option<(u32, SlotsFrom)>> {
    let requested = env("SLURM_NTASKS").is_some() || env("SLURM_NTASKS_PER_NODE").is_some();
    let tasks = env("SLURM_TASKS_PER_NODE").filter(|_| requested);
    let gpus = env("SLURM_GPUS_PER_NODE").and_then(|text| gpus(&text));
    let gpus = gpus.or_else(|| env("SLURM_GPUS_ON_NODE").and_then(|text| gpus_of_type(&text)));
    let gpus = gpus.filter(|count| *count > 0);
    if let Some(counts) = tasks.as_deref().and_then(per_node)
        && counts.len() == nodes
        && !(counts.iter().all(|count| *count == 1) && gpus.is_some_and(|count| count > 1))
    {
        let slots = |count: u32| Some((count.clamp(1, MAX_SLOTS), SlotsFrom::Explicit));
        return counts.into_iter().map(slots).collect();
    }
    vec![gpus.map(|count| (count.min(MAX_SLOTS), SlotsFrom::Accelerators)); nodes]
}

/// The maximum number of nodes of a job.
const MAX_NODES: usize = 65_536;

/// `2(x3),1` is 2, 2, 2, 1. `None` for more than 65,536 nodes.
fn per_node(text: &str) -> Option<Vec<u32>> {
    let mut counts = Vec::new();
    for part in text.trim().split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if times > MAX_NODES - counts.len() {
            return None;
        }
        counts.extend(std::iter::repeat_n(count.parse::<u32>().ok()?, times));
    }
    Some(counts)
}

/// `a100:4,t4:1` is 5, `4` is 4.
fn gpus(text: &str) -> Option<u32> {
    text.split(',')
        .map(gpus_of_type)
        .try_fold(0u32, |sum, count| sum.checked_add(count?))
}

/// `a100:4` is 4, `4` is 4.
fn gpus_of_type(text: &str) -> Option<u32> {
    text.trim().rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots_with(pairs: &[(&str, &str)], nodes: usize) -> Vec<Option<(u32, SlotsFrom)>> {
        let find = |name: &str| {
            let pair = pairs.iter().find(|(key, _)| *key == name);
            pair.map(|(_, value)| (*value).to_owned())
        };
        slots(&find, nodes)
    }

    fn per_node_of(text: &str) -> Option<usize> {
        per_node(text).map(|counts| counts.len())
    }

    #[test]
    fn tasks_count_if_they_were_requested() {
        let tasks = |count| Some((count, SlotsFrom::Explicit));
        let asked = [("SLURM_NTASKS", "7"), ("SLURM_TASKS_PER_NODE", "2(x3),1")];
        assert_eq!(
            slots_with(&asked, 4),
            [tasks(2), tasks(2), tasks(2), tasks(1)]
        );
        assert_eq!(slots_with(&asked[1..], 4), [None; 4]);
        let per_node = [
            ("SLURM_NTASKS_PER_NODE", "8"),
            ("SLURM_TASKS_PER_NODE", "8(x2)"),
        ];
        assert_eq!(slots_with(&per_node, 2), [tasks(8); 2]);
        assert_eq!(slots_with(&per_node, 3), [None; 3], "nodes have gone since");
        assert_eq!(per_node_of("1(x65535),2"), Some(65_536));
        assert_eq!(per_node_of("1(x65536),2"), None, "as many as fit no job");
    }

    #[test]
    fn one_task_a_node_says_nothing_where_there_are_several_gpus() {
        let one_each = [
            ("SLURM_NTASKS_PER_NODE", "1"),
            ("SLURM_TASKS_PER_NODE", "1(x2)"),
        ];
        let with_gpus = |count| [&one_each[..], &[("SLURM_GPUS_PER_NODE", count)]].concat();
        assert_eq!(
            slots_with(&with_gpus("h100:8"), 2),
            [Some((8, SlotsFrom::Accelerators)); 2]
        );
        let task = [Some((1, SlotsFrom::Explicit)); 2];
        assert_eq!(slots_with(&with_gpus("1"), 2), task);
        assert_eq!(slots_with(&one_each, 2), task);
    }

    #[test]
    fn then_gpus_count() {
        let gpus = |count| Some((count, SlotsFrom::Accelerators));
        assert_eq!(
            slots_with(&[("SLURM_GPUS_PER_NODE", "a100:4,t4:1")], 2),
            [gpus(5); 2]
        );
        assert_eq!(slots_with(&[("SLURM_GPUS_ON_NODE", "8")], 1), [gpus(8)]);
        assert_eq!(slots_with(&[("SLURM_GPUS_ON_NODE", "0")], 1), [None]);
        assert_eq!(slots_with(&[("SLURM_GPUS_ON_NODE", "many")], 1), [None]);
    }
}
