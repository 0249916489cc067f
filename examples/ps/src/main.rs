//! Sparse logistic regression with a parameter server, asynchronous: reads handwritten digits, one classifier for each against all
//! others.
//!
//! The weights are kept by the servers. A worker takes a few images, pulls the weights of the features that they have, and pushes
//! what its step adds to these. No worker waits for another one. The role of a process comes from the variables of ps-lite;
//! `run.sh` starts all.

mod data;
mod model;
mod server;

use std::{io::Write, process::ExitCode};

use anyhow::{Context, Result};
use clap::Parser;
use data::{Image, images, is_for_test};
use elasticrun_ps::{
    Array, KvServer, KvWorker, Options, Postoffice, Role, SummingHandler, WORKER_GROUP,
};
use model::{CLASSES, Weights};

#[derive(Parser)]
struct Arguments {
    /// How often each worker sees its images.
    #[arg(long, default_value_t = 20)]
    epochs: usize,
    /// Images of a step.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Length of a step.
    #[arg(long, default_value_t = 0.05)]
    rate: f32,
}

fn main() -> ExitCode {
    let Err(error) = run() else {
        return ExitCode::SUCCESS;
    };
    // In one piece: all processes of the job may write to one terminal.
    let line = format!("ps-digits: {error:#}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    ExitCode::FAILURE
}

fn run() -> Result<()> {
    let arguments = Arguments::parse();
    let options = Options::from_env()?;
    if options.elastic && options.role == Role::Server {
        return server::serve(options);
    }
    let postoffice = Postoffice::start(options)?;
    match postoffice.role() {
        Role::Scheduler => {}
        Role::Server => {
            KvServer::<f32>::new(&postoffice, 0, SummingHandler::default())?;
        }
        Role::Worker => work(&postoffice, &arguments)?,
    }
    Ok(postoffice.finalize()?)
}

fn work(postoffice: &Postoffice, arguments: &Arguments) -> Result<()> {
    let kv = KvWorker::<f32>::new(postoffice, 0, 0)?;
    let images = images().context("the images that this program contains")?;
    let (rank, workers) = (postoffice.my_rank(), postoffice.num_workers());
    let (test, train): (Vec<_>, Vec<_>) =
        (images.into_iter().enumerate()).partition(|(row, _)| is_for_test(*row));
    let own: Vec<&Image> = (train.iter().enumerate())
        .filter(|(index, _)| *index as u32 % workers == rank)
        .map(|(_, (_, image))| image)
        .collect();
    for epoch in 1..=arguments.epochs {
        let mut pushed = None;
        for batch in own.chunks(arguments.batch.max(1)) {
            let weights = pull(&kv, batch)?;
            let step = weights.step(batch, arguments.rate);
            // The push before this one: more than one in flight would only make the weights older.
            if let Some(pushed) = pushed.replace(kv.push(&weights.keys, step)?) {
                kv.wait(pushed)?;
            }
        }
        if let Some(pushed) = pushed {
            kv.wait(pushed)?;
        }
        if rank == 0 {
            println!("epoch {epoch} of {}", arguments.epochs);
        }
    }
    println!(
        "worker {rank}: {} images, {} epochs",
        own.len(),
        arguments.epochs
    );
    // All pushes are in the servers then.
    postoffice.barrier(WORKER_GROUP)?;
    if rank == 0 {
        let test: Vec<&Image> = test.iter().map(|(_, image)| image).collect();
        let weights = pull(&kv, &test)?;
        let right = (test.iter())
            .filter(|image| weights.read(image) == image.digit)
            .count();
        let share = right as f64 / test.len() as f64;
        println!("accuracy {share:.3} on {} other images", test.len());
    }
    Ok(())
}

/// Pulls the weights of all features that an image has. Features that were never pushed have weights of zero.
fn pull(kv: &KvWorker<f32>, images: &[&Image]) -> Result<Weights> {
    let mut keys: Vec<u64> = (images.iter())
        .flat_map(|image| image.features.iter().map(|(key, _)| *key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let keys = Array::from(keys);
    let pulled = kv.pull(&keys, CLASSES)?.wait()?;
    Ok(Weights {
        keys,
        values: pulled.values,
    })
}
