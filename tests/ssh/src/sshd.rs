//! An sshd for one host, with generated keys.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::Host;

/// An absolute path, which sshd requires.
pub(crate) const PROGRAM: &str = "/usr/sbin/sshd";

/// Makes the host's key, the user's key, another key, and an empty list of known hosts.
pub(crate) fn make_keys(directory: &Path) {
    for name in ["host_key", "key", "other_key"] {
        let output = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(directory.join(name))
            .output()
            .expect("ssh-keygen can be run");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::copy(directory.join("key.pub"), directory.join("authorized_keys"))
        .expect("a key can be copied");
    fs::write(directory.join("known_hosts"), "").expect("a file can be written");
}

/// A running daemon; dropping it ends it.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    namespace: String,
}

impl Sshd {
    /// Starts sshd, adds the host to the known hosts, and waits until sshd listens.
    pub(crate) fn start(directory: &Path, host: &Host, more: &str) -> Self {
        // sshd requires this directory for its unprivileged process.
        fs::create_dir_all("/run/sshd").expect("root may make it");
        let file = |name: &str| directory.join(name).display().to_string();
        let configuration = format!(
            "Port 22\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\n\
             MaxStartups 100\n",
            host.address,
            file("host_key"),
            file("authorized_keys"),
        );
        // sshd uses the first of two values of an option.
        let path = file(&format!("sshd_config.{}", host.address));
        fs::write(&path, format!("{more}\n{configuration}")).expect("a file can be written");
        make_known(directory, host);
        let child = Command::new("ip")
            .args([
                "netns",
                "exec",
                &host.namespace,
                PROGRAM,
                "-D",
                "-e",
                "-f",
                &path,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ip can be run");
        let daemon = Self {
            child,
            namespace: host.namespace.clone(),
        };
        daemon.wait(host, 1 + more.matches("ListenAddress").count());
        daemon
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Waits until the daemon listens at so many addresses: its lines are in the namespace's own tables of sockets.
    fn wait(&self, host: &Host, count: usize) {
        let address = SocketAddr::new(host.address.into(), 22);
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let output = Command::new("ip")
                .args(["netns", "exec", &host.namespace, "cat"])
                .args(["/proc/net/tcp", "/proc/net/tcp6"])
                .output()
                .expect("ip can be run");
            let table = String::from_utf8_lossy(&output.stdout).into_owned();
            // Local port 22, state LISTEN.
            let listens = |line: &&str| line.contains(":0016 ") && line.contains(" 0A ");
            if table.lines().filter(listens).count() >= count {
                return;
            }
            assert!(Instant::now() < deadline, "no sshd at {address}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_known(directory: &Path, host: &Host) {
    let key = fs::read_to_string(directory.join("host_key.pub")).expect("the key was made");
    let path = directory.join("known_hosts");
    let mut known = fs::read_to_string(&path).expect("the file was made");
    let address = host.address.to_string();
    for name in [address]
        .into_iter()
        .chain(host.address_v6.map(|v6| v6.to_string()))
    {
        let line = format!("{name} {key}");
        if !known.contains(&line) {
            known += &line;
        }
    }
    fs::write(path, known).expect("a file can be written");
}
