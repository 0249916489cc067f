//! Prints what a commit of 1 GiB costs beside a memcpy that alternates between two warm targets, and
//! what the first ones cost with and without room reserved for them.
//!
//! `cargo run --release -p elasticrun-shm --example commit [MIB]`

use std::{
    env,
    io::Write,
    time::{Duration, Instant},
};

use elasticrun_protocol::{CommitId, DriverEpoch, Round};
use elasticrun_shm::commit::{CommitMemory, CommitWriter};

const TRIALS: u64 = 11;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mib: usize = env::args().nth(1).map_or(Ok(1024), |text| text.parse())?;
    let source: Vec<u8> = (0..mib << 20).map(|byte| byte as u8).collect();
    let mut targets = [source.clone(), source.clone()];

    let (_memory, mut writer) = open()?;
    let mut count = 0;
    let mut commit = |writer: &mut CommitWriter| {
        count += 1;
        timed(|| {
            let mut write = writer.begin(id(count), 0)?;
            write.write_all(&source)?;
            write.seal(None);
            Ok(())
        })
    };
    let first = [commit(&mut writer)?, commit(&mut writer)?];

    let (mut ours, mut memcpy) = (Vec::new(), Vec::new());
    for trial in 0..TRIALS {
        let target = &mut targets[trial as usize % 2];
        memcpy.push(timed(|| {
            std::hint::black_box(&mut *target).copy_from_slice(std::hint::black_box(&source));
            Ok(())
        })?);
        ours.push(commit(&mut writer)?);
    }
    let (ours, memcpy) = (median(ours), median(memcpy));
    let gbs = |time: Duration| source.len() as f64 / time.as_secs_f64() / 1e9;
    println!(
        "memcpy of {mib} MiB     {memcpy:>9.1?}  {:5.1} GB/s",
        gbs(memcpy)
    );
    println!("warm commit          {ours:>9.1?}  {:5.1} GB/s", gbs(ours));
    println!(
        "speed of memcpy's    {:.2}",
        memcpy.as_secs_f64() / ours.as_secs_f64()
    );
    println!("first two, cold      {:>9.1?}  {:.1?}", first[0], first[1]);
    drop(writer);

    let (memory, mut writer) = open()?;
    let reserve = timed(|| Ok(writer.reserve(source.len())?))?;
    let first = [commit(&mut writer)?, commit(&mut writer)?];
    println!("reserve              {reserve:>9.1?}");
    println!("first two after it   {:>9.1?}  {:.1?}", first[0], first[1]);

    let mut read = 0;
    let open = timed(|| {
        let reader = memory.reader()?;
        let newest = reader.newest()?.ok_or("no commit")?;
        let commit = reader.read(newest.id)?;
        read = commit.bytes().len();
        Ok(())
    })?;
    println!("open it to read      {open:>9.1?}");
    if read != source.len() {
        return Err("the commit has another length".into());
    }
    let rename = timed(|| Ok(writer.rename_newest(id(u64::MAX))?))?;
    println!("rename it            {rename:>9.1?}");
    Ok(())
}

fn open() -> Result<(CommitMemory, CommitWriter), Failure> {
    let memory = CommitMemory::create()?;
    let [a, b] = memory.fds();
    let writer = CommitWriter::open([a.try_clone_to_owned()?, b.try_clone_to_owned()?])?;
    Ok((memory, writer))
}

fn id(count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(1),
        count,
    }
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
