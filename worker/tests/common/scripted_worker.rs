//! The worker: executes the commands that it reads, one per line.
//!
//! | command | prints |
//! |---|---|
//! | `add N` | `value V` |
//! | `commit` | `committed ID` |
//! | `check` | `checked` |
//! | `barrier` | `passed` |
//! | `sum` | `sum S`, of a 1 from each worker |
//! | `insist` | as `commit`, after a sum whose error is ignored |
//! | `set KEY VALUE` | `set`, in the store of the round |
//! | `get KEY` | `got VALUE`, as soon as it is there |
//! | `wrong` | a broadcast from a rank that does not exist |
//! | `busy PATH` | `idle`, after spinning until a file `PATH` exists |
//! | `return` | returns from the training function |
//! | `fail` | returns an error of its own |
//!
//! A command that fails prints its error, and an interrupt returns to `run()`.

use std::{
    io::{self, BufRead, Write},
    path::Path,
    time::Duration,
};

use elasticrun_worker::{Error, Op, Session, State, Worker, World, run, state};

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Sdk(#[from] Error),
    #[error("an error of my own")]
    Own,
}

#[derive(Default)]
struct Counter {
    value: u64,
    restored: u32,
    reset: u32,
}

impl State for Counter {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.value.save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.restored += 1;
        self.value.restore(from)
    }

    fn reset(&mut self, _: &World) {
        self.reset += 1;
    }
}

fn print(text: impl std::fmt::Display) {
    println!("> {text}");
    io::stdout().flush().expect("the test reads");
}

/// Runs the worker until its stdin ends or it is told to end. Returns the exit code.
pub(crate) fn scripted_worker() -> i32 {
    let mut counter = Counter::default();
    let ended = run(&mut counter, train);
    let code = match &ended {
        Ok(()) => 0,
        Err(Failure::Sdk(Error::Removed)) => 0,
        Err(_) => 1,
    };
    match ended {
        Ok(()) => print("done"),
        Err(error) => print(format!("ended: {error}")),
    }
    if run(&mut counter, train).is_err_and(|error| matches!(error, Failure::Sdk(Error::RunTwice))) {
        return code;
    }
    unreachable!("a process is a worker once");
}

/// Imitates a binding that, from its second round on, passes any state that it has as the result of
/// reset callbacks. Prints the value with which each round begins. Ends after the next line of its
/// stdin.
pub(crate) fn careless() -> i32 {
    let mut counter = Counter::default();
    let mut worker = Worker::attach().expect("an agent");
    let mut returned = false;
    loop {
        let joined = worker.join(None).expect("a round");
        let mut group = joined.expect("it waits without a limit");
        match worker.sync(&mut group, &mut counter, returned) {
            Ok(_) => break,
            Err(error) => {
                assert!(error.interrupt().is_some(), "{error}");
                drop(group);
                assert!(worker.leave(false));
                returned = true;
            }
        }
    }
    print(format!("begins with {}", counter.value));
    let ended = io::stdin().lock().read_line(&mut String::new());
    ended.map_or(1, |_| 0)
}

fn train(session: &mut Session<'_>, counter: &mut Counter) -> Result<(), Failure> {
    let Counter {
        value,
        restored,
        reset,
    } = counter;
    let (rank, size, round) = (session.rank(), session.size(), session.world().round());
    print(format!(
        "round {round} rank {rank} of {size} value {value} restored {restored} reset {reset}"
    ));
    loop {
        let mut line = String::new();
        io::stdin()
            .lock()
            .read_line(&mut line)
            .expect("the test writes");
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = match words[..] {
            ["add", more] => {
                counter.value += more.parse::<u64>().expect("a number");
                Ok(format!("value {}", counter.value))
            }
            ["commit"] => session.commit(counter).map(|id| format!("committed {id}")),
            ["check"] => session
                .check_host_updates(counter)
                .map(|()| "checked".to_owned()),
            ["barrier"] => session.barrier().map(|()| "passed".to_owned()),
            ["sum"] => {
                let mut one = [1.0_f32];
                session
                    .allreduce(&mut one, Op::Sum)
                    .map(|()| format!("sum {}", one[0]))
            }
            ["insist"] => {
                drop(session.allreduce(&mut [1.0_f32], Op::Sum));
                session.commit(counter).map(|id| format!("committed {id}"))
            }
            ["set", key, value] => {
                let set = session.store().set(key, value.as_bytes());
                set.map(|()| "set".to_owned())
            }
            ["fill", key, length] => {
                let value = vec![b'x'; length.parse().expect("a length")];
                let set = session.store().set(key, &value);
                set.map(|()| "set".to_owned())
            }
            ["push", key, value] => {
                let pushed = session.store().queue_push(key, value.as_bytes());
                pushed.map(|()| "pushed".to_owned())
            }
            ["get", key] => {
                let got = session.store().get(key, Duration::from_secs(600));
                got.map(|value| format!("got {}", String::from_utf8_lossy(&value)))
            }
            ["wrong"] => session
                .broadcast(&mut [0_u8], size)
                .map(|()| "right".to_owned()),
            ["busy", path] => {
                while !Path::new(path).exists() {
                    std::hint::spin_loop();
                }
                Ok("idle".to_owned())
            }
            ["return"] => return Ok(()),
            ["fail"] | [] => return Err(Failure::Own),
            _ => panic!("{line}"),
        };
        match result {
            Ok(text) => print(text),
            Err(error) => {
                print(&error);
                if !matches!(error, Error::Collective(_) | Error::Store(_)) {
                    return Err(error.into());
                }
            }
        }
    }
}
