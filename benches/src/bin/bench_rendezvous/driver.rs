//! The driver under measurement: the real binary on one core, with the figures of its process.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use elasticrun_tls::token::Token;
use tokio::net::TcpStream;

/// A running driver that listens. Dropping it kills it.
pub(crate) struct Driver {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) token: Token,
    _directory: tempfile::TempDir,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Driver {
    /// Starts the driver of a job of `np` workers that continues with `min_np`.
    pub(crate) async fn start(
        binary: &Path,
        np: u32,
        min_np: u32,
        restart_mode: Option<&str>,
    ) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let token_file = directory.path().join("token");
        let token = Token::random(SystemTime::now() + Duration::from_hours(1))
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        write_private(&token_file, &token.expose())?;
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (np, min_np) = (np.to_string(), min_np.to_string());
        let child = Command::new("taskset")
            .args(["-c", "0"])
            .arg(binary)
            .args(["--launcher", "agent", "--join-token-file"])
            .arg(&token_file)
            .args(["--listen", &address.to_string(), "--quiet", "-np", &np])
            .args(["--max-np", &np, "--min-np", &min_np])
            .args(
                restart_mode
                    .into_iter()
                    .flat_map(|mode| ["--restart-mode", mode]),
            )
            .args(["--heartbeat-timeout", "120s", "--log-level", "error"])
            .args(["--", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the driver (is taskset installed?)")?;
        let driver = Self {
            child,
            address,
            token,
            _directory: directory,
        };
        wait_for_port(address).await?;
        Ok(driver)
    }

    /// Time on a processor of all threads, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let stat = fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += stat
                .split_whitespace()
                .next()
                .context("no schedstat")?
                .parse::<f64>()?;
        }
        Ok(nanos / 1e9)
    }

    /// The most memory that it had, in MiB.
    pub(crate) fn rss_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM"))
            .context("no VmHWM")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no size")?.parse()?;
        Ok(kib / 1024.0)
    }
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    Ok(writeln!(file, "{text}")?)
}

async fn wait_for_port(address: SocketAddr) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).await.is_err() {
        ensure!(
            Instant::now() < until,
            "the driver does not listen at {address}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
