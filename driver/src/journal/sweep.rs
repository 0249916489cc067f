//! Removes old journals from the state directory of the user.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use super::{Files, lock::Lock, place};

/// How long a journal without a driver stays.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a directory without a journal stays. A driver that was killed at its start leaves one.
const KEEP_INCOMPLETE: Duration = Duration::from_secs(24 * 3600);

/// How many journals without a driver stay, the newest ones.
const KEEP_COUNT: usize = 100;

/// Removes the journals of this user that are older than a week, and those beyond the newest 100. A journal with a living driver
/// stays. Journals at other paths (`--journal PATH`) stay. Blocks.
pub(crate) fn sweep() {
    let Some(root) = place::state_directory() else {
        return;
    };
    match sweep_in(&root, SystemTime::now(), KEEP_COUNT) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(%error, "old journals stay");
        }
        _ => {}
    }
}

fn sweep_in(root: &Path, now: SystemTime, keep: usize) -> io::Result<()> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(root)? {
        let directory = entry?.path();
        let changed = fs::metadata(directory.join(place::NAME)).and_then(|file| file.modified());
        match changed {
            Ok(changed) => journals.push((changed, directory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                remove_incomplete(&directory, now);
            }
            Err(error) => tracing::debug!(%error, path = %directory.display(), "not a journal"),
        }
    }
    journals.sort();
    for (index, (changed, directory)) in journals.iter().rev().enumerate() {
        let path = directory.join(place::NAME);
        let is_old = now.duration_since(*changed).unwrap_or_default() > KEEP;
        if is_old || index >= keep {
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

/// Removes a directory without a journal if it is old, and has nothing but the other files of a journal.
fn remove_incomplete(directory: &Path, now: SystemTime) {
    let changed = fs::metadata(directory).and_then(|directory| directory.modified());
    let is_old = changed
        .is_ok_and(|changed| now.duration_since(changed).unwrap_or_default() > KEEP_INCOMPLETE);
    if !is_old {
        return;
    }
    let files = Files::beside(&directory.join(place::NAME));
    let lock = files.lock.exists().then(|| Lock::take(&files.lock, ""));
    if !matches!(lock, Some(Err(_))) {
        files.remove();
        files.remove_directory();
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
    async fn old_journals_and_those_beyond_a_number_are_removed() {
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
        let mut killed = create("killed");
        killed.keep();
        killed.close().await;
        let lives = create("lives");
        fs::create_dir(root.join("other")).expect("made");
        fs::write(root.join("other/notes"), "of a person").expect("made");
        let now = SystemTime::now();
        sweep_in(root, now, 4).expect("swept");
        assert_eq!(
            names(root),
            ["ended1", "ended2", "killed", "lives", "other"]
        );
        sweep_in(root, now, 0).expect("swept");
        assert_eq!(names(root), ["lives", "other"]);
        sweep_in(root, now + KEEP * 2, 4).expect("swept");
        assert_eq!(names(root), ["lives", "other"], "its driver lives");
        drop(lives);
    }

    #[test]
    fn a_directory_without_a_journal_is_removed_after_a_day() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        for run in ["empty", "begun", "held"] {
            fs::create_dir(root.join(run)).expect("made");
        }
        fs::write(root.join("begun/journal.redb.key"), [0; 32]).expect("made");
        drop(Lock::take(&root.join("begun/journal.redb.lock"), "begun").expect("free"));
        let _held = Lock::take(&root.join("held/journal.redb.lock"), "held").expect("free");
        let now = SystemTime::now();
        sweep_in(root, now, 4).expect("swept");
        assert_eq!(names(root), ["begun", "empty", "held"]);
        // A child that another test starts may hold a copy of a lock for a moment.
        while names(root).len() > 1 {
            sweep_in(root, now + KEEP_INCOMPLETE * 2, 4).expect("swept");
        }
        assert_eq!(names(root), ["held"]);
    }
}
