//! Measures the start of many hosts by ssh: how many launches run at a time, and how long it takes until all workers run.
//!
//! A script takes the place of ssh. It waits as long as a real one needs to log in, and then runs the agent here, so a host
//! costs a process and no machine. A launch counts from the start of the script to that of its agent.
//!
//! `bench_launch --driver PATH [--hosts N] [--delay SECONDS]`

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// How long all workers may take to run.
const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Parser)]
struct Options {
    /// The binary `elasticrun`; else the one beside this binary.
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Hosts with one worker each.
    #[arg(long, default_value_t = 300)]
    hosts: u32,
    /// Seconds from the start of ssh to that of the agent.
    #[arg(long, default_value_t = 1.0)]
    delay: f64,
}

/// The driver. Dropping it ends the job.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let beside = std::env::current_exe()?.with_file_name("elasticrun");
    let driver = options.driver.unwrap_or(beside);
    ensure!(
        driver.exists(),
        "{} is missing: cargo build --release -p elasticrun",
        driver.display()
    );
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name);
    write_ssh(&file("ssh"), &file("launches"), options.delay)?;
    let first = u32::from(Ipv4Addr::new(127, 0, 1, 1));
    let hosts: Vec<_> = (first..first + options.hosts)
        .map(|address| format!("{}:1", Ipv4Addr::from(address)))
        .collect();
    let search = std::env::var("PATH").unwrap_or_default();
    let began = Instant::now();
    let child = Command::new(&driver)
        .args(["--launcher", "ssh", "-np", &options.hosts.to_string()])
        .args(["-H", &hosts.join(","), "--", "sh", "-c"])
        .arg(format!(
            "echo >>'{}'; exec sleep 1000",
            file("run").display()
        ))
        .env("PATH", format!("{}:{search}", directory.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the driver")?;
    let driver = Driver(child);
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    while lines(&file("run")) < options.hosts as usize {
        ensure!(began.elapsed() < TIMEOUT, "not all workers run");
        thread::sleep(Duration::from_millis(20));
    }
    let wall = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds(driver.0.id())?;
    let most = most_at_once(&fs::read_to_string(file("launches"))?);
    println!(
        "{} hosts by ssh, {} s each: {most} launches at a time at most, all workers run after {wall:.1} s, driver cpu {:.0} ms",
        options.hosts,
        options.delay,
        cpu * 1e3
    );
    println!(
        "{{\"bench\":\"launch\",\"hosts\":{},\"delay_s\":{},\"most\":{most},\"wall_s\":{wall:.3},\"driver_cpu_s\":{cpu:.4}}}",
        options.hosts, options.delay
    );
    Ok(())
}

/// Writes the script that takes the place of ssh. It notes its start and that of the agent.
fn write_ssh(path: &Path, launches: &Path, delay: f64) -> Result<()> {
    let launches = launches.display();
    let script = format!(
        "#!/bin/sh\necho + >>'{launches}'\nsleep {delay}\necho - >>'{launches}'\nfor words; do :; done\nexec sh -c \"$words\"\n"
    );
    fs::write(path, script)?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o755),
    )?)
}

/// The most launches that ran at a time, of which each has noted its start as `+` and its end as `-`.
fn most_at_once(log: &str) -> i32 {
    let (mut running, mut most) = (0, 0);
    for line in log.lines() {
        running += if line == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    most
}

/// Time on a processor of all threads of a process, in seconds.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let mut nanos = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        let first = stat.split_whitespace().next().context("no schedstat")?;
        nanos += first.parse::<f64>()?;
    }
    Ok(nanos / 1e9)
}
