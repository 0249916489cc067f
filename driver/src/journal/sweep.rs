//! Removes old journals from the state directory of the user.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use super::{Files, database::has_ended, lock::Lock, place};

/// How long a journal without a driver stays.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many journals of ended runs stay, the newest ones.
const KEEP_ENDED: usize = 100;

/// Removes the journals of this user that are older than a week, and those of ended runs beyond the newest 100. A journal with
/// a living driver stays. Journals at other paths (`--journal PATH`) stay. Blocks.
pub(crate) fn sweep() {
    let Some(root) = place::state_directory() else {
        return;
    };
    match sweep_in(&root, SystemTime::now(), KEEP_ENDED) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, "old journals stay");
        }
        _ => {}
    }
}

fn sweep_in(root: &Path, now: SystemTime, keep_ended: usize) -> io::Result<()> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(root)? {
        let directory = entry?.path();
        let changed = fs::metadata(directory.join(place::NAME)).and_then(|file| file.modified());
        if let Ok(changed) = changed {
            journals.push((changed, directory));
        }
    }
    journals.sort();
    for (index, (changed, directory)) in journals.iter().rev().enumerate() {
        let path = directory.join(place::NAME);
        let is_old = now.duration_since(*changed).unwrap_or_default() > KEEP;
        if is_old || index >= keep_ended && has_ended(&path) == Some(true) {
            remove(directory, &path);
        }
    }
    Ok(())
}

/// Removes the directory of a journal, unless a driver has it.
fn remove(directory: &Path, path: &Path) {
    let Ok(_lock) = Lock::take(&Files::beside(path).lock, "") else {
        return;
    };
    if let Err(error) = fs::remove_dir_all(directory) {
        tracing::debug!(%error, path = %directory.display(), "an old journal stays");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Journal};
    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(root)
            .expect("it is there")
            .map(|entry| {
                entry
                    .expect("it is there")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn old_journals_and_many_of_ended_runs_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        let create = |run: &str| {
            let path = root.join(run).join(place::NAME);
            Journal::create(&path, run).expect("created").0
        };
        for run in ["ended1", "ended2"] {
            let ended = create(run).end([Entry::new("final", vec![1])]).await;
            assert_eq!(ended, Ok(()));
        }
        let lives = create("lives");
        fs::create_dir(root.join("other")).expect("made");
        let now = SystemTime::now();
        sweep_in(root, now, 3).expect("swept");
        assert_eq!(names(root), ["ended1", "ended2", "lives", "other"]);
        // The newest one may be any of the three, and is counted.
        sweep_in(root, now, 0).expect("swept");
        assert_eq!(names(root), ["lives", "other"]);
        sweep_in(root, now + KEEP * 2, 3).expect("swept");
        assert_eq!(names(root), ["lives", "other"], "its driver lives");
        drop(lives);
    }
}
