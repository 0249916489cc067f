//! Journals on a real disk: what is read again, what is refused, and what a failed write does.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use redb::{Database, ReadableTable as _, TableDefinition};
use tempfile::TempDir;

use super::*;

const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
const RUN: &str = "1a2b3c4d";

/// The header of a redb file, in bytes.
const HEADER: usize = 320;

struct Place {
    _directory: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    // In memory if possible: some tests open thousands of journals, and each open waits for the disk.
    let memory = Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let directory = directory.expect("a directory");
    let path = directory.path().join("runs").join(RUN).join("journal");
    Place {
        _directory: directory,
        path,
    }
}

fn entry(key: &str, value: &str) -> Entry {
    Entry::new(key, value.as_bytes().to_vec())
}

fn text(entries: &Entries) -> Vec<(&str, &str)> {
    let text = |value| std::str::from_utf8(value).expect("text");
    entries
        .iter()
        .map(|(key, value)| (key.as_str(), text(value)))
        .collect()
}

async fn closed(journal: Journal) {
    journal.close().await;
}

/// Opens a journal that was closed in this process. A child that another test starts has a copy of each lock until it runs its
/// program.
fn reopened(path: &Path, run: &str) -> Result<(Journal, Entries, mpsc::Receiver<Notice>), Error> {
    loop {
        match Journal::read(path, run).and_then(Stored::start) {
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            opened => return opened,
        }
    }
}

/// Creates a journal at the path of one that was closed in this process. See [`reopened`].
fn created_again(path: &Path, run: &str) -> Result<(Journal, mpsc::Receiver<Notice>), Error> {
    loop {
        match Journal::create(path, run) {
            Err(Error::InUse { .. }) => std::thread::yield_now(),
            created => return created,
        }
    }
}

/// A closed journal with so many hosts, its entries, and the bytes that its file had when the driver was killed.
async fn written(path: &Path, hosts: usize) -> (Entries, Vec<u8>) {
    let (journal, _notices) = Journal::create(path, RUN).expect("created");
    let mut all = vec![entry("config", &"x".repeat(3000)), entry("epoch", "1")];
    all.extend((0..hosts).map(|host| entry(&format!("hosts/{host}"), &"h".repeat(300))));
    for part in all.chunks(7) {
        let answer = journal.persist(part.iter().cloned()).await;
        assert_eq!(answer, Ok(Ok(())));
    }
    let killed = fs::read(path).expect("a file");
    closed(journal).await;
    let (journal, entries, _notices) = reopened(path, RUN).expect("sound");
    closed(journal).await;
    let expected = all.into_iter().map(|e| (e.key, e.value.expect("a value")));
    assert_eq!(entries, expected.collect::<Entries>());
    (entries, killed)
}

#[tokio::test]
async fn the_last_value_of_each_key_is_read_again() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    journal.write([entry("a", "1"), entry("b", "1"), entry("c", "1")]);
    journal.write([entry("a", "2")]);
    let gone = Entry {
        key: "b".to_owned(),
        value: None,
    };
    assert_eq!(journal.persist([gone]).await, Ok(Ok(())));
    closed(journal).await;
    let (_journal, entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(text(&entries), [("a", "2"), ("c", "1")]);
}

#[tokio::test]
async fn only_the_user_can_read_the_files() {
    let place = place();
    let (_journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    let files = Files::beside(&place.path);
    for file in [&files.database, &files.key, &files.lock] {
        let mode = fs::metadata(file).expect("it is there").mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    let directory = place.path.parent().expect("a parent");
    assert_eq!(fs::metadata(directory).expect("made").mode() & 0o777, 0o700);
}

#[tokio::test]
async fn values_are_not_readable_in_the_file() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    let answer = journal
        .persist([entry("config", "a secret of the user")])
        .await;
    assert_eq!(answer, Ok(Ok(())));
    closed(journal).await;
    let bytes = fs::read(&place.path).expect("a file");
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
}

#[tokio::test]
async fn a_second_driver_is_refused_with_the_process_of_the_first() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    let expected = format!("run {RUN} has a driver (process {})", std::process::id());
    let error = Journal::read(&place.path, RUN).expect_err("it is held");
    assert_eq!(error.to_string(), expected);
    let error = Journal::create(&place.path, "second").expect_err("it is held");
    let error = error.to_string();
    let holder = format!("has a driver (process {})", std::process::id());
    // The new run has no driver.
    assert!(
        error.contains(&holder) && !error.contains("second"),
        "{error}"
    );
    closed(journal).await;
    reopened(&place.path, RUN).expect("it is free");
}

#[tokio::test]
async fn a_journal_that_is_torn_at_any_page_is_refused_or_read_whole() {
    let place = place();
    let (expected, killed) = written(&place.path, 40).await;
    let closed = fs::read(&place.path).expect("a file");
    for bytes in [killed, closed] {
        let mut refused = 0;
        for length in (0..bytes.len()).step_by(4096) {
            fs::write(&place.path, &bytes[..length]).expect("ours");
            refused += usize::from(!is_whole(&place.path, &expected).await);
        }
        assert!(refused > 10, "{refused} of {} bytes", bytes.len());
        fs::write(&place.path, &bytes).expect("ours");
        assert!(is_whole(&place.path, &expected).await);
    }
}

#[tokio::test]
async fn a_journal_with_a_changed_byte_in_any_page_is_refused_or_read_whole() {
    let place = place();
    let (expected, killed) = written(&place.path, 40).await;
    let closed = fs::read(&place.path).expect("a file");
    for bytes in [killed, closed] {
        let mut refused = 0;
        let used = |at: &usize| bytes.get(*at).is_some_and(|byte| *byte != 0);
        let in_page = |page: usize| (page..page + 4096).find(used);
        let pages = (4096..bytes.len()).step_by(4096).filter_map(in_page);
        // The header of the file decides which pages are read at all.
        let header = (0..HEADER).flat_map(|at| (0..8).map(move |bit| (at, bit)));
        for (at, bit) in header.chain(pages.map(|at| (at, 4))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            fs::write(&place.path, &changed).expect("ours");
            refused += usize::from(!is_whole(&place.path, &expected).await);
        }
        assert!(refused > 10, "{refused}");
    }
}

/// Whether a changed journal is read as it was. Otherwise it must be refused as damaged.
async fn is_whole(path: &Path, expected: &Entries) -> bool {
    match reopened(path, RUN) {
        Ok((journal, entries, _notices)) => {
            let keys = (entries.keys()).filter(|key| expected.get(*key) == entries.get(*key));
            assert_eq!(keys.count(), expected.len(), "entries are missing");
            assert_eq!(entries.len(), expected.len());
            closed(journal).await;
            true
        }
        Err(Error::Damaged { why, .. }) => {
            assert!(!why.contains('\n'), "{why}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Changes a plain value of a closed journal.
fn set_meta(path: &Path, name: &str, value: &str) {
    let database = Database::open(path).expect("sound");
    let transaction = database.begin_write().expect("free");
    let mut meta = transaction.open_table(META).expect("it is there");
    meta.insert(name, value).expect("free");
    drop(meta);
    transaction.commit().expect("free");
}

#[tokio::test]
async fn an_older_copy_of_the_database_is_refused() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(journal.persist([entry("epoch", "1")]).await, Ok(Ok(())));
    closed(journal).await;
    let older = fs::read(&place.path).expect("a file");
    let (journal, _entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(journal.persist([entry("epoch", "2")]).await, Ok(Ok(())));
    closed(journal).await;
    fs::write(&place.path, older).expect("ours");
    let error = reopened(&place.path, RUN).expect_err("older").to_string();
    assert!(error.contains("its newest commits are missing"), "{error}");
}

#[tokio::test]
async fn a_newer_format_is_refused_with_both_releases() {
    let place = place();
    written(&place.path, 1).await;
    set_meta(&place.path, "format", "9");
    closed(reopened(&place.path, RUN).expect("readers of 1 may").0).await;
    set_meta(&place.path, "software", "9.1.0");
    set_meta(&place.path, "reader", "2");
    let error = reopened(&place.path, RUN).expect_err("newer").to_string();
    for words in [
        "elasticrun 9.1.0",
        "format 2",
        env!("CARGO_PKG_VERSION"),
        "format 1",
    ] {
        assert!(error.contains(words), "{error}");
    }
    set_meta(&place.path, "reader", "one");
    let error = reopened(&place.path, RUN).expect_err("damaged");
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn entries_of_an_unknown_kind_are_kept() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(
        journal.persist([entry("later/kind", "?")]).await,
        Ok(Ok(()))
    );
    closed(journal).await;
    let (journal, _entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(journal.persist([entry("epoch", "2")]).await, Ok(Ok(())));
    closed(journal).await;
    let (_journal, entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(text(&entries), [("epoch", "2"), ("later/kind", "?")]);
}

#[tokio::test]
async fn a_journal_of_another_run_or_key_is_refused() {
    let place = place();
    written(&place.path, 1).await;
    let error = reopened(&place.path, "other").expect_err("of another run");
    assert!(matches!(error, Error::OtherRun { .. }), "{error}");
    let files = Files::beside(&place.path);
    let key = fs::read(&files.key).expect("a key");
    fs::write(&files.key, [1; 32]).expect("ours");
    let error = reopened(&place.path, RUN).expect_err("another key");
    assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    fs::write(&files.key, key).expect("ours");
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).expect("ours");
    let error = reopened(&place.path, RUN).expect_err("an open key");
    assert!(matches!(error, Error::OpenKey { .. }), "{error}");
    let error = reopened(&place.path.with_extension("no"), RUN).expect_err("missing");
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(
        !Files::beside(&place.path.with_extension("no"))
            .lock
            .exists()
    );
}

#[tokio::test]
async fn a_value_that_was_moved_to_another_entry_is_damage() {
    const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
    let place = place();
    written(&place.path, 2).await;
    let database = Database::open(&place.path).expect("sound");
    let transaction = database.begin_write().expect("free");
    let mut state = transaction.open_table(STATE).expect("it is there");
    let one = state
        .get("hosts/0")
        .expect("sound")
        .expect("there")
        .value()
        .to_vec();
    state.insert("hosts/1", one.as_slice()).expect("free");
    drop(state);
    transaction.commit().expect("free");
    drop(database);
    let error = reopened(&place.path, RUN).expect_err("damaged").to_string();
    assert!(error.contains("\"hosts/1\" has changed"), "{error}");
}

#[tokio::test]
async fn a_journal_that_no_driver_has_is_replaced_and_an_unfinished_run_is_named() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(journal.persist([entry("a", "1")]).await, Ok(Ok(())));
    closed(journal).await;
    let (journal, _notices) = created_again(&place.path, "second").expect("replaced");
    assert_eq!(journal.replaced(), Some(RUN));
    assert_eq!(journal.end([entry("final", "0")]).await, Ok(()));
    let (journal, _notices) = created_again(&place.path, "third").expect("replaced");
    assert_eq!(journal.replaced(), None, "it has an outcome");
    closed(journal).await;
    let (_journal, entries, _notices) = reopened(&place.path, "third").expect("sound");
    assert!(entries.is_empty());
}

#[tokio::test]
async fn the_journal_of_a_driver_that_was_killed_is_replaced() {
    let place = place();
    let (_entries, killed) = written(&place.path, 2).await;
    fs::write(&place.path, killed).expect("ours");
    assert_eq!(
        database::has_ended(&place.path),
        None,
        "only a repair can read it"
    );
    let (journal, _notices) = created_again(&place.path, "second").expect("replaced");
    assert_eq!(journal.replaced(), Some(RUN));
    closed(journal).await;
    // So does one that was killed before its first commit.
    fs::write(&place.path, "").expect("ours");
    let (journal, _notices) = created_again(&place.path, "third").expect("replaced");
    assert_eq!(journal.replaced(), None);
}

#[tokio::test]
async fn an_ended_journal_that_was_read_is_closed_again() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(journal.end([entry("final", "0")]).await, Ok(()));
    let (journal, _entries, _notices) = reopened(&place.path, RUN).expect("sound");
    closed(journal).await;
    let stored = loop {
        match Journal::read(&place.path, RUN) {
            Err(Error::Locked { .. }) => std::thread::yield_now(),
            read => break read.expect("sound"),
        }
    };
    drop(stored);
    assert_eq!(database::has_ended(&place.path), Some(true));
}

#[tokio::test]
async fn the_journal_of_a_run_that_has_not_begun_is_removed() {
    let place = place();
    let directory = place.path.parent().expect("a parent");
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(journal.persist([entry("a", "1")]).await, Ok(Ok(())));
    drop(journal);
    assert!(!directory.exists());
    let (mut journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    journal.keep();
    drop(journal);
    let (journal, _entries, _notices) = reopened(&place.path, RUN).expect("it is there");
    drop(journal);
    reopened(&place.path, RUN).expect("a journal that was there before stays");
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_not_replaced() {
    let place = place();
    fs::create_dir_all(place.path.parent().expect("a parent")).expect("made");
    fs::write(&place.path, "notes").expect("made");
    let error = Journal::create(&place.path, RUN).expect_err("in use");
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("is no journal that can be read"), "{error}");
    assert_eq!(fs::read(&place.path).expect("untouched"), b"notes");
    let files = Files::beside(&place.path);
    assert!(
        !files.lock.exists() && !files.key.exists(),
        "nothing is left"
    );
}

#[tokio::test]
async fn a_journal_that_cannot_be_created_leaves_nothing() {
    let place = place();
    let runs = place
        .path
        .parent()
        .and_then(Path::parent)
        .expect("a parent");
    fs::create_dir_all(runs).expect("made");
    let file = runs.join("file");
    fs::write(&file, "").expect("made");
    let error = Journal::create(&file.join(RUN).join("journal"), RUN).expect_err("no directory");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(runs).expect("there").count(), 1);
}

#[tokio::test]
async fn a_journal_that_is_gone_for_a_while_loses_nothing() {
    let place = place();
    let (journal, mut notices) = Journal::create(&place.path, RUN).expect("created");
    let away = place.path.with_extension("away");
    fs::rename(&place.path, &away).expect("ours");
    let answer = journal.persist([entry("a", "1")]).await.expect("an answer");
    let why = answer.expect_err("it is gone");
    assert!(why.contains("is gone"), "{why}");
    assert_eq!(notices.recv().await, Some(Notice::Failed(why)));
    let answer = journal.persist([entry("b", "1")]).await.expect("an answer");
    assert!(answer.is_err());
    fs::rename(&away, &place.path).expect("ours");
    assert_eq!(journal.persist([entry("c", "1")]).await, Ok(Ok(())));
    // Once for each change: the second failure was not told.
    assert_eq!(notices.recv().await, Some(Notice::Works));
    closed(journal).await;
    let (_journal, entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(text(&entries), [("a", "1"), ("b", "1"), ("c", "1")]);
}

#[tokio::test]
async fn the_end_of_a_run_is_marked() {
    let place = place();
    let (journal, _notices) = Journal::create(&place.path, RUN).expect("created");
    assert_eq!(journal.persist([entry("a", "1")]).await, Ok(Ok(())));
    closed(journal).await;
    assert_eq!(database::has_ended(&place.path), Some(false));
    let (journal, _entries, _notices) = reopened(&place.path, RUN).expect("sound");
    assert_eq!(journal.end([entry("final", "0")]).await, Ok(()));
    assert_eq!(database::has_ended(&place.path), Some(true));
}
