//! The linked-in plugin: its lists and its change notifications.

#![allow(clippy::unwrap_used)]

use std::{
    ffi::c_void,
    fs,
    os::unix::fs::symlink,
    path::Path,
    ptr, slice,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use elasticrun_plugin_file::{ELASTICRUN_PLUGIN, Hosts, Options};
use elasticrun_plugin_sdk::{
    ErrorKind, HostState, Plugin, PluginError, Snapshot,
    abi::{RawBuffer, RawHost, code},
};
use tempfile::TempDir;

const PLENTY: Duration = Duration::from_secs(30);

fn create(path: &Path) -> Result<Hosts, PluginError> {
    Hosts::create(Options { path: path.into() })
}

#[test]
fn the_file_is_read_at_each_poll() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("hosts");
    let error = create(&path).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadConfig);
    assert!(error.message.ends_with("(os error 2)"), "{error}");
    fs::write(&path, "a:1025\n").unwrap();
    let error = create(&path).unwrap_err();
    let expected = r#"line 1, "a:1025": slots must be a number from 1 to 1024"#;
    assert!(error.message.ends_with(expected), "{error}");
    fs::write(&path, "b:4 # rack 1\r\na\n").unwrap();
    let mut plugin = create(&path).unwrap();
    let hosts = plugin.poll(PLENTY).unwrap().hosts;
    let seen: Vec<_> = hosts.iter().map(|host| (&*host.id, host.slots)).collect();
    assert_eq!(seen, [("b", Some(4)), ("a", None)]);
    fs::write(&path, "c\nd:0\n").unwrap();
    let hosts = plugin.poll(PLENTY).unwrap().hosts;
    let seen: Vec<_> = hosts.iter().map(|host| (&*host.id, host.state)).collect();
    assert_eq!(seen, [("c", HostState::Ready), ("d", HostState::Pending)]);
    fs::remove_file(&path).unwrap();
    assert_eq!(plugin.poll(PLENTY).unwrap_err().kind, ErrorKind::Retryable);
}

#[test]
fn a_file_that_becomes_a_named_pipe_is_refused_at_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("hosts");
    fs::write(&path, "a\n").unwrap();
    let mut plugin = create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    // Nothing opens the pipe for writing, so reading it would wait forever.
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Retryable);
    assert!(
        error.message.ends_with("hosts: is no regular file"),
        "{error}"
    );
    assert!(create(Path::new("/dev/zero")).is_err());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "b\n").unwrap();
    assert_eq!(plugin.poll(PLENTY).unwrap().hosts[0].id, "b");
}

/// An instance that pushes to a channel, through the binary interface.
struct Watched {
    instance: *mut c_void,
    context: *mut Sender<()>,
    pushed: Receiver<()>,
}

unsafe extern "C" fn push(context: *mut c_void) {
    // SAFETY: `Watched` owns it until the instance is destroyed.
    let sender = unsafe { &*context.cast::<Sender<()>>() };
    sender.send(()).unwrap();
}

impl Watched {
    fn new(path: &Path) -> Self {
        let plugin = &ELASTICRUN_PLUGIN;
        let config = format!(r#"{{"path": "{}"}}"#, path.display());
        let (sender, pushed) = channel();
        let context = Box::into_raw(Box::new(sender));
        let (mut instance, mut answer) = (ptr::null_mut(), RawBuffer::EMPTY);
        // SAFETY: the arguments are as in a call of a host, and all targets are live.
        unsafe {
            let (data, len) = (config.as_ptr(), config.len());
            let create = plugin.create.unwrap();
            let made = create(&RawHost::THIS, data, len, &mut instance, &mut answer);
            assert_eq!(made, code::OK, "{:?}", text(&answer));
            let watch = plugin.watch.unwrap();
            let watched = watch(instance, push, context.cast(), &mut answer);
            assert_eq!(watched, code::OK, "{:?}", text(&answer));
        }
        Self {
            instance,
            context,
            pushed,
        }
    }

    /// The result of a poll: ids, and milliseconds to the next poll if they are set.
    fn poll(&self) -> (Vec<String>, Option<u64>) {
        let mut answer = RawBuffer::EMPTY;
        // SAFETY: the arguments are as in a call of a host, and all targets are live.
        let json = unsafe {
            let poll = ELASTICRUN_PLUGIN.poll.unwrap();
            assert_eq!(poll(self.instance, 1000, &mut answer), code::OK);
            let json = text(&answer).to_owned();
            ELASTICRUN_PLUGIN.free.unwrap()(answer);
            json
        };
        let snapshot: Snapshot = serde_json::from_str(&json).unwrap();
        let ids = snapshot.hosts.into_iter().map(|host| host.id).collect();
        let next = snapshot.next_poll.map(|time| time.as_millis() as u64);
        (ids, next)
    }

    fn is_pushed(&self) {
        self.pushed
            .recv_timeout(PLENTY)
            .expect("the change is not pushed");
    }
}

unsafe fn text(answer: &RawBuffer) -> &str {
    // SAFETY: a plugin in Rust answers with text.
    str::from_utf8(unsafe { slice::from_raw_parts(answer.data, answer.len) }).unwrap()
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the last call on the instance. No notification follows.
        unsafe {
            ELASTICRUN_PLUGIN.destroy.unwrap()(self.instance);
            drop(Box::from_raw(self.context));
        }
    }
}

#[test]
fn every_way_to_change_the_file_is_pushed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("hosts");
    fs::write(&path, "a\n").unwrap();
    let watched = Watched::new(&path);
    fs::write(&path, "a\nb\n").unwrap();
    watched.is_pushed();
    fs::write(dir.path().join("new"), "c\n").unwrap();
    fs::rename(dir.path().join("new"), &path).unwrap();
    watched.is_pushed();
    fs::remove_file(&path).unwrap();
    watched.is_pushed();
    // Like a mounted ConfigMap: a link through a linked directory, which is replaced.
    fs::create_dir(dir.path().join("1")).unwrap();
    fs::create_dir(dir.path().join("2")).unwrap();
    fs::write(dir.path().join("1/hosts"), "a\n").unwrap();
    fs::write(dir.path().join("2/hosts"), "b\n").unwrap();
    symlink("1", dir.path().join("data")).unwrap();
    symlink("data/hosts", &path).unwrap();
    watched.is_pushed();
    symlink("2", dir.path().join("new")).unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("data")).unwrap();
    watched.is_pushed();
}

/// The job removes a host that two polls do not list, so the second poll follows soon.
#[test]
fn a_list_that_lacks_hosts_is_confirmed_soon_if_its_writer_is_done() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("hosts");
    let replace = |text: &str| {
        fs::write(dir.path().join("new"), text).unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
    };
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    fs::write(&path, "a\nb\n").unwrap();
    let watched = Watched::new(&path);
    assert_eq!(watched.poll(), (ids(&["a", "b"]), None));
    replace("a\n");
    watched.is_pushed();
    assert_eq!(watched.poll(), (ids(&["a"]), Some(20)));
    assert_eq!(watched.poll(), (ids(&["a"]), None), "once is enough");
    replace("a\nc\n");
    watched.is_pushed();
    assert_eq!(
        watched.poll(),
        (ids(&["a", "c"]), None),
        "nobody is missing"
    );
}

#[test]
fn other_files_of_the_directory_push_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("hosts");
    fs::write(&path, "a\n").unwrap();
    let watched = Watched::new(&path);
    for name in 0..100 {
        fs::write(dir.path().join(name.to_string()), "x").unwrap();
    }
    // Events are ordered, so those of the other files are handled when this one is pushed. It may be pushed twice: during an
    // event of another file, and by its own event.
    fs::write(&path, "b\nc\n").unwrap();
    watched.is_pushed();
    assert!(watched.pushed.try_iter().count() <= 1);
}
