//! One rank of our implementation. Reads commands from stdin and prints nanoseconds of time and of
//! processor time per operation.

use std::{
    collections::BTreeMap,
    io::{BufRead, Write, stdin, stdout},
    net::{SocketAddr, TcpListener},
    os::fd::{FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use elasticrun_collectives::{Aborter, Group, GroupConfig, Op, RoundId, Topology};
use nix::time::{ClockId, clock_gettime};

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    rank: u32,
    #[arg(long)]
    size: u32,
    /// Descriptor of the region; without it each rank is a host of its own.
    #[arg(long)]
    region: Option<RawFd>,
    /// Encrypts messages between hosts.
    #[arg(long)]
    encrypt: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut lines = stdin().lock().lines();
    let table = lines.next().context("no addresses came")??;
    let addresses: Vec<SocketAddr> = table.split(' ').map(str::parse).collect::<Result<_, _>>()?;

    let (rank, size) = (options.rank, options.size);
    let together = options.region.is_some();
    let topology = Topology {
        rank,
        size,
        local_index: if together { rank } else { 0 },
        local_count: if together { size } else { 1 },
        host_index: if together { 0 } else { rank },
        host_count: if together { 1 } else { size },
        first_rank: if together { 0 } else { rank },
    };
    let region = options.region.map(|fd| {
        // SAFETY: the parent passed this descriptor to this process, and nothing else here owns it.
        unsafe { OwnedFd::from_raw_fd(fd) }
    });
    let peers: BTreeMap<u32, SocketAddr> = (0..).zip(addresses).collect();
    let config = GroupConfig {
        topology,
        region,
        listener: &listener,
        peers,
        key: [1; 32],
        encrypt: options.encrypt,
        round_id: RoundId { epoch: 1, round: 1 },
        timeout: Duration::from_secs(20),
    };
    let mut group = Group::connect(config, &Aborter::new())?;
    println!("ready");
    let mut buffers = Buffers::default();
    for line in lines {
        let line = line?;
        let mut words = line.split(' ');
        let mut word = || words.next().context("OPERATION BYTES ITERATIONS");
        let (operation, bytes, iterations) = (word()?, word()?.parse()?, word()?.parse::<u32>()?);
        buffers.prepare(&mut group, operation, bytes)?;
        group.barrier()?;
        let (start, processor) = (Instant::now(), processor_time()?);
        for _ in 0..iterations {
            buffers.once(&mut group)?;
        }
        let elapsed = start.elapsed() / iterations;
        let processor = (processor_time()? - processor) / iterations;
        println!("{} {}", elapsed.as_nanos(), processor.as_nanos());
        stdout().flush()?;
    }
    Ok(())
}

/// Processor time that this process has used.
fn processor_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// An operation and its data, kept while the same operation is measured again.
#[derive(Default)]
struct Buffers {
    operation: String,
    bytes: usize,
    input: Vec<f32>,
    output: Vec<f32>,
}

impl Buffers {
    fn prepare(&mut self, group: &mut Group, operation: &str, bytes: usize) -> Result<()> {
        if self.operation == operation && self.bytes == bytes {
            return Ok(());
        }
        let size = group.topology().size as usize;
        let rank = group.topology().rank;
        let elements = bytes / size_of::<f32>();
        let input = if operation == "allgather" {
            elements / size
        } else {
            elements
        };
        let output = if operation == "allgather" {
            elements / size * size
        } else {
            0
        };
        *self = Self::default();
        self.operation = operation.to_owned();
        self.bytes = bytes;
        self.input = vec![rank as f32; input];
        self.output = vec![-1.0; output];
        self.once(group)?;
        let right = match operation {
            "allreduce" => self
                .input
                .iter()
                .all(|&x| x == (size * (size - 1) / 2) as f32),
            "broadcast" => self.input.iter().all(|&x| x == 0.0),
            _ => {
                let ranks = (0..size).flat_map(|rank| std::iter::repeat_n(rank as f32, input));
                self.output.iter().copied().eq(ranks)
            }
        };
        ensure!(right, "{operation} of {bytes} bytes gave wrong values");
        // Zeroes, so that sums do not grow over the iterations.
        self.input.fill(0.0);
        Ok(())
    }

    fn once(&mut self, group: &mut Group) -> Result<()> {
        match self.operation.as_str() {
            "allreduce" => group.allreduce(&mut self.input, Op::Sum)?,
            "broadcast" => group.broadcast(&mut self.input, 0)?,
            "allgather" => group.allgather(&self.input, &mut self.output)?,
            other => bail!("unknown operation {other}"),
        }
        Ok(())
    }
}
