use std::{
    io::Read,
    os::unix::fs::{PermissionsExt, symlink},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::tempdir;

use super::*;

fn read(store: &Directory, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = store.open(name).unwrap()?;
    assert_eq!(file.bytes.read_to_end(&mut bytes).unwrap() as u64, file.len);
    Some(bytes)
}

fn write(store: &Directory, directory: &str, name: &str, bytes: &[u8]) -> Result<(), Error> {
    store.write(directory, &mut |file| {
        file.write_all(bytes)?;
        Ok(Some(name.to_owned()))
    })
}

#[test]
fn files_are_written_listed_and_removed() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path());
    assert_eq!(store.runs().unwrap(), Vec::<String>::new());
    write(&store, "r/2", "data", b"bytes").unwrap();
    write(&store, "r/10", "data", b"more").unwrap();
    store.publish("r/2/done", b"no").unwrap();
    store.publish("r/2/done", b"yes").unwrap();
    assert_eq!(store.list("r").unwrap(), ["10", "2"]);
    assert_eq!(store.list("r/2").unwrap(), ["data", "done"]);
    assert_eq!(store.list("r/2/data").unwrap(), Vec::<String>::new());
    assert_eq!(read(&store, "r/2/data").unwrap(), b"bytes");
    assert_eq!(read(&store, "r/2/done").unwrap(), b"yes");
    assert_eq!(read(&store, "r/2/other"), None);
    store.remove("r/2/done").unwrap();
    store.remove_directory("r/2").unwrap();
    store.remove_directory("r/2").unwrap();
    assert_eq!(store.list("r").unwrap(), ["10"]);
}

#[test]
fn a_write_that_fails_or_is_discarded_leaves_nothing() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path());
    let full = |file: &mut dyn Write| {
        file.write_all(b"some")?;
        Err(ErrorKind::StorageFull.into())
    };
    let error = store.write("r/1", &mut { full }).unwrap_err().to_string();
    let path = root.path().join("r/1").display().to_string();
    assert!(
        error.starts_with(&format!("cannot write {path}: ")),
        "{error}"
    );
    store.write("r/2", &mut |_| Ok(None)).unwrap();
    assert!(store.list("r").unwrap().is_empty());
    // Files of an earlier write stay.
    write(&store, "r/3", "data", b"bytes").unwrap();
    store.write("r/3", &mut { full }).unwrap_err();
    assert_eq!(store.list("r/3").unwrap(), ["data"]);
}

#[test]
fn nothing_is_published_in_a_directory_that_was_removed() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path());
    write(&store, "r/1", "data", b"bytes").unwrap();
    store.remove_directory("r/1").unwrap();
    store.publish("r/1/done", b"yes").unwrap_err();
    assert!(store.list("r").unwrap().is_empty());
}

#[test]
fn a_link_is_not_followed_by_a_removal() {
    let root = tempdir().unwrap();
    let elsewhere = tempdir().unwrap();
    fs::write(elsewhere.path().join("data"), "of the user").unwrap();
    symlink(elsewhere.path(), root.path().join("r")).unwrap();
    Directory::new(root.path()).remove_directory("r").unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    assert!(elsewhere.path().join("data").exists());
}

#[test]
fn a_store_that_does_not_exist_is_no_empty_store() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path().join("not mounted"));
    let place = root.path().join("not mounted").display().to_string();
    let text = format!("{place} is not a durable store: it does not exist on this host");
    assert_eq!(store.check().unwrap_err().to_string(), text);
    assert_eq!(store.check_writable().unwrap_err().to_string(), text);
    assert_eq!(
        write(&store, "r/1", "data", b"").unwrap_err().to_string(),
        text
    );
    assert!(!root.path().join("not mounted").exists());
    Directory::new(root.path()).check_writable().unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn no_other_user_can_read_a_state() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path());
    write(&store, "r/1", "data", b"bytes").unwrap();
    let mode = |path: &str| fs::metadata(root.path().join(path)).unwrap().mode() & 0o777;
    assert_eq!(
        [mode("r"), mode("r/1"), mode("r/1/data")],
        [0o700, 0o700, 0o600]
    );
}

#[test]
fn what_other_users_could_have_changed_is_not_read() {
    let root = tempdir().unwrap();
    let store = Directory::new(root.path());
    for run in ["r", "s"] {
        write(&store, &format!("{run}/1"), "data", b"bytes").unwrap();
    }
    let data = root.path().join("r/1/data");
    fs::set_permissions(&data, PermissionsExt::from_mode(0o666)).unwrap();
    let refused = |name: &str| store.open(name).err().map(|error| error.to_string());
    let text = format!("{} is not used: ", data.display());
    assert!(refused("r/1/data").unwrap().starts_with(&text));
    // Neither is what is no file of its own.
    mkfifo(&root.path().join("r/1/pipe"), Mode::S_IRWXU).unwrap();
    assert!(refused("r/1/pipe").is_some());
    symlink(root.path().join("s/1/data"), root.path().join("r/1/link")).unwrap();
    assert!(refused("r/1/link").is_some());
    assert!(refused("s/1/data").is_none());
    fs::set_permissions(root.path().join("r"), PermissionsExt::from_mode(0o777)).unwrap();
    symlink(root.path().join("s"), root.path().join("t")).unwrap();
    assert_eq!(store.runs().unwrap(), ["s"]);
}
