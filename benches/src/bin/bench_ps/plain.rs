//! The peer: a client and a server that send the same bytes over TCP, each with one thread and blocking calls.

use std::{
    collections::VecDeque,
    io::{IoSlice, Read, Write, stdin},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use elasticrun_benches::figures::quantile;

/// A header, as long as ours: the bytes behind it, and the bytes of values of the answer.
const HEADER: usize = 80;
/// A key.
const KEY: usize = 8;

pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 64 << 20];
    let zeros = vec![0; 64 << 20];
    let mut header = [0; HEADER];
    loop {
        // Its client ends with the benchmark.
        if stream.read_exact(&mut header).is_err() {
            return Ok(());
        }
        let number = |at: usize| {
            u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default()) as usize
        };
        let (payload, answer) = (number(0), number(8));
        stream.read_exact(&mut buffer[..payload])?;
        write_all(&mut stream, &header, &zeros[..answer])?;
    }
}

/// Sends two parts with as few calls as possible.
fn write_all(stream: &mut TcpStream, first: &[u8], second: &[u8]) -> Result<()> {
    let mut slices = [IoSlice::new(first), IoSlice::new(second)];
    let mut slices = &mut slices[..];
    while !slices.is_empty() {
        let count = stream.write_vectored(slices)?;
        IoSlice::advance_slices(&mut slices, count);
        if slices.iter().all(|slice| slice.is_empty()) {
            break;
        }
    }
    Ok(())
}

pub(crate) fn run(address: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    println!("ready");
    for line in stdin().lines() {
        let line = line?;
        let mut words = line.split(' ');
        let mut word = || words.next().context("four words");
        let (operation, size) = (word()?, word()?.parse::<usize>()?);
        let (window, millis) = (word()?.parse::<usize>()?, word()?.parse()?);
        let push = operation.starts_with("push");
        let pull = operation.ends_with("pull");
        let case = Case {
            payload: vec![0; KEY + if push { size } else { 0 }],
            answer: if pull { size } else { 0 },
            window,
            limit: Duration::from_millis(millis),
        };
        // Both directions of many push-pulls fill the sockets: one thread for each, as any program would have.
        let (count, seconds, mut times) = match push && pull && size > 8192 && window > 1 {
            true => case.two_threads(&mut stream)?,
            false => case.one_thread(&mut stream)?,
        };
        let median = quantile(&mut times, 0.5).unwrap_or(0.0);
        println!("{count} {seconds} {median}");
    }
    Ok(())
}

struct Case {
    payload: Vec<u8>,
    answer: usize,
    window: usize,
    limit: Duration,
}

type Measured = (usize, f64, Vec<f64>);

impl Case {
    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&(self.payload.len() as u64).to_le_bytes());
        header[8..16].copy_from_slice(&(self.answer as u64).to_le_bytes());
        header
    }

    fn one_thread(&self, stream: &mut TcpStream) -> Result<Measured> {
        let header = self.header();
        let mut answer = vec![0; HEADER + self.answer];
        let mut in_flight = VecDeque::new();
        let mut times = Vec::new();
        let (mut sent, start) = (0, Instant::now());
        while sent < self.window || start.elapsed() < self.limit || !in_flight.is_empty() {
            let more = sent < self.window || start.elapsed() < self.limit;
            if in_flight.len() == self.window || !more {
                stream.read_exact(&mut answer)?;
                let begun: Option<Instant> = in_flight.pop_front();
                times.extend(begun.map(|begun| begun.elapsed().as_secs_f64() * 1e6));
            }
            if more {
                in_flight.push_back(Instant::now());
                write_all(stream, &header, &self.payload)?;
                sent += 1;
            }
        }
        Ok((sent, start.elapsed().as_secs_f64(), times))
    }

    fn two_threads(&self, stream: &mut TcpStream) -> Result<Measured> {
        let header = self.header();
        let mut writing = stream.try_clone()?;
        let start = Instant::now();
        let (begin, begun) = std::sync::mpsc::channel::<Instant>();
        let (allow, allowed) = std::sync::mpsc::sync_channel::<()>(self.window);
        for _ in 0..self.window {
            allow.send(())?;
        }
        thread::scope(|scope| {
            let writer = scope.spawn(move || -> Result<usize> {
                let mut sent = 0;
                while sent < self.window || start.elapsed() < self.limit {
                    allowed.recv()?;
                    begin.send(Instant::now())?;
                    write_all(&mut writing, &header, &self.payload)?;
                    sent += 1;
                }
                Ok(sent)
            });
            let mut answer = vec![0; HEADER + self.answer];
            let mut times = Vec::new();
            for begun in begun {
                stream.read_exact(&mut answer)?;
                times.push(begun.elapsed().as_secs_f64() * 1e6);
                // The writer may have ended.
                let _ = allow.send(());
            }
            let sent = writer
                .join()
                .map_err(|_| anyhow::anyhow!("the writer panicked"))??;
            Ok((sent, start.elapsed().as_secs_f64(), times))
        })
    }
}
