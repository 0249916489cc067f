//! How much memory a process can still get.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The bytes that this process can still get before the system kills one for lack of memory: of the machine, and of the
/// control groups that it is in (versions 1 and 2). Memory that the system would take from file caches, and free swap
/// space, count as available. `None` if the system says nothing.
pub fn available_memory() -> Option<u64> {
    available_below(Path::new("/"))
}

/// As [`available_memory`], with this directory as the root of the file system.
fn available_below(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let swap = kilobytes(&meminfo, "SwapFree:").unwrap_or(0);
    let machine = kilobytes(&meminfo, "MemAvailable:");
    let groups = groups(root).into_iter().filter_map(|group| group.left());
    machine
        .into_iter()
        .chain(groups)
        .min()
        .map(|bytes| bytes.saturating_add(swap))
}

/// The value of a line such as `MemAvailable:   4711 kB`, in bytes.
fn kilobytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

/// The names of what a control group says of its memory.
#[derive(Debug)]
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` that name memory which the system takes back before it kills.
    reclaimable: [&'static str; 3],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file", ""],
};

const V2: Names = Names {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: ["inactive_file", "active_file", "slab_reclaimable"],
};

/// A control group, by its directory.
#[derive(Debug)]
struct Group {
    dir: PathBuf,
    names: &'static Names,
}

impl Group {
    /// The bytes below its limit. `None` if it has none.
    fn left(&self) -> Option<u64> {
        let read = |name| fs::read_to_string(self.dir.join(name)).ok();
        let number = |name| read(name)?.trim().parse::<u64>().ok();
        let limit = number(self.names.limit)?;
        let usage = number(self.names.usage)?;
        let stat = read("memory.stat").unwrap_or_default();
        let lines = stat.lines().filter_map(|line| line.split_once(' '));
        let reclaimable: u64 = lines
            .filter(|(name, _)| self.names.reclaimable.contains(name))
            .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
            .sum();
        Some(limit.saturating_sub(usage.saturating_sub(reclaimable)))
    }
}

/// The control groups of this process that may have a limit, and those above them.
fn groups(root: &Path) -> Vec<Group> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in memberships.lines() {
        // Number of the hierarchy, controllers, path.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (mount, names) = match controllers {
            "" => ("sys/fs/cgroup", &V2),
            v1 if v1.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", &V1),
            _ => continue,
        };
        let mount = root.join(mount);
        let below = mount.join(path.trim_start_matches('/'));
        // A container may see its own group as the root of the mount.
        let dirs = below.ancestors().take_while(|dir| dir.starts_with(&mount));
        groups.extend(dirs.map(|dir| Group {
            dir: dir.to_owned(),
            names,
        }));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    /// A directory with these files, whose available memory is asked for.
    fn of(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_below(root.path())
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       25165824 kB\nMemFree: 1048576 kB\nMemAvailable:    8388608 kB\nSwapFree:  0 kB\n",
    );

    #[test]
    fn without_groups_it_is_that_of_the_machine() {
        assert_eq!(of(&[MEMINFO]), Some(8 * GB));
        assert_eq!(of(&[]), None);
        let swap = "MemAvailable: 1048576 kB\nSwapFree: 2097152 kB\n";
        assert_eq!(of(&[("proc/meminfo", swap)]), Some(3 * GB));
    }

    #[test]
    fn a_group_of_version_2_or_one_above_it_may_have_less() {
        let files = |max, above| {
            [
                MEMINFO,
                ("proc/self/cgroup", "0::/pod/worker\n"),
                ("sys/fs/cgroup/pod/worker/memory.max", max),
                ("sys/fs/cgroup/pod/worker/memory.current", "3221225472\n"),
                (
                    "sys/fs/cgroup/pod/worker/memory.stat",
                    "anon 1\ninactive_file 1073741824\nactive_file 0\nslab_reclaimable 0\n",
                ),
                ("sys/fs/cgroup/pod/memory.max", above),
                ("sys/fs/cgroup/pod/memory.current", "3221225472\n"),
            ]
        };
        assert_eq!(of(&files("max\n", "max\n")), Some(8 * GB));
        assert_eq!(of(&files("4294967296\n", "max\n")), Some(2 * GB));
        assert_eq!(of(&files("4294967296\n", "4294967296\n")), Some(GB));
        // It has more than its limit, which was made smaller.
        assert_eq!(of(&files("1024\n", "max\n")), Some(0));
    }

    #[test]
    fn a_group_of_version_1_may_have_less_also_as_the_root_of_a_container() {
        let files = |dir: &str| {
            let name = |file| format!("sys/fs/cgroup/memory{dir}/{file}");
            let files = [
                (MEMINFO.0.to_owned(), MEMINFO.1),
                (
                    "proc/self/cgroup".to_owned(),
                    "5:cpu,cpuacct:/\n4:memory:/docker/a\n0::/\n",
                ),
                (name("memory.limit_in_bytes"), "4294967296\n"),
                (name("memory.usage_in_bytes"), "3221225472\n"),
                (
                    name("memory.stat"),
                    "inactive_file 1\ntotal_inactive_file 536870912\n",
                ),
            ];
            let files: Vec<_> = (files.iter())
                .map(|(name, text)| (name.as_str(), *text))
                .collect();
            of(&files)
        };
        assert_eq!(files("/docker/a"), Some(GB + GB / 2));
        assert_eq!(files("/docker"), Some(GB + GB / 2));
        assert_eq!(files(""), Some(GB + GB / 2));
        assert_eq!(files("/docker/another"), Some(8 * GB));
    }

    #[test]
    fn this_machine_says_something() {
        assert!(available_memory().is_some_and(|bytes| bytes > 0));
    }
}
