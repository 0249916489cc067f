//! A set of CPUs, in the notation of Linux (`0-3,8`).

use std::{collections::BTreeSet, fmt, io};

/// CPUs by number.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The CPUs that the calling thread may use.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        // SAFETY: a set is plain data, for which zeroes are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a live local of this size. 0 is the calling thread.
        if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let is_in = |cpu: &u32| {
            // SAFETY: the number is smaller than that of the bits of a set.
            unsafe { libc::CPU_ISSET(*cpu as usize, &set) }
        };
        Ok((0..libc::CPU_SETSIZE.cast_unsigned())
            .filter(is_in)
            .collect())
    }

    /// The set for a call of the system. `None` if it has a CPU whose number is too large.
    pub(crate) fn to_system(&self) -> Option<libc::cpu_set_t> {
        // SAFETY: a set is plain data, for which zeroes are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in &self.0 {
            if *cpu >= libc::CPU_SETSIZE.cast_unsigned() {
                return None;
            }
            // SAFETY: the number is smaller than that of the bits of a set.
            unsafe { libc::CPU_SET(*cpu as usize, &mut set) };
        }
        Some(set)
    }

    /// Reads a list such as `0-3,8`. `None` if it is none.
    pub(super) fn parse(list: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        let parts = list.trim().split(',');
        for part in parts.filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// The CPUs that are in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        for (list, shown) in [
            ("0-3,8\n", "0-3,8"),
            ("0", "0"),
            ("1,0,2", "0-2"),
            ("\n", ""),
            ("4-5,5-7", "4-7"),
        ] {
            let read = CpuSet::parse(list).expect("a list");
            assert_eq!(read.to_string(), shown);
        }
        for wrong in ["a", "1-", "0-3:1", "-1"] {
            assert_eq!(CpuSet::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_set_goes_to_the_system_and_comes_back() {
        let all = CpuSet::of_this_thread().expect("the system tells it");
        let set = all.to_system().expect("it came from the system");
        // SAFETY: a live set.
        let count = unsafe { libc::CPU_COUNT(&set) };
        assert_eq!(usize::try_from(count), Ok(all.len()));
        assert!(CpuSet::from_iter([1024]).to_system().is_none());
    }
}
