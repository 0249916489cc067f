//! Copies this program to a host.
//!
//! - The name of a copy holds the hash of the program, so a new build is copied again.
//! - A copy gets its name only if its length is right, and its hash where the host can tell. What an interrupted push has
//!   left there is no copy, and is removed.
//! - A launch first starts the copy that should be there. Only a host without one costs a push, which takes a turn: all
//!   pushes share the network of the driver's machine.
//! - A push removes what is left of pushes more than a day old, and copies that no launch has used for 30 days.

use std::{fs::File, process::Stdio, sync::Arc};

use tokio::{process::Command, sync::Semaphore};

use super::program::{self, Image};

/// Pushes at a time.
pub(super) const PUSHES_AT_ONCE: usize = 8;

/// Exit code of [`Remote::run`] if the copy is not there. No agent ends with it.
pub(super) const NOT_THERE: i32 = 97;

/// Directory of the copies, below the home directory of the user there.
const DIRECTORY: &str = ".cache/elasticrun/bin";

/// A push that may be necessary.
pub(super) struct Push {
    /// Runs [`Remote::receive`] on the host.
    command: Command,
    turns: Arc<Semaphore>,
}

impl Push {
    /// The push whose remote command is [`Remote::receive`].
    pub(super) fn new(command: Command, turns: Arc<Semaphore>) -> Self {
        Self { command, turns }
    }

    /// Waits for its turn and copies this program to the host. Cancellation ends the command.
    ///
    /// # Errors
    /// The reason, for the operator.
    pub(super) async fn run(mut self) -> Result<(), String> {
        let _turn = self.turns.acquire().await;
        let output = match File::open(program::RUNNING) {
            Ok(file) => self.command.stdin(Stdio::from(file)).output().await,
            Err(error) => Err(error),
        };
        let why = match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                let last = stderr.trim().lines().last().map(str::to_owned);
                last.unwrap_or_else(|| format!("ssh ended ({})", output.status))
            }
            Err(error) => error.to_string(),
        };
        Err(format!("cannot copy the binary there: {why}"))
    }
}

/// The copy of this program on a host, as shell commands for the host.
pub(super) struct Remote<'a> {
    image: &'a Image,
}

impl<'a> Remote<'a> {
    /// The copy of a program.
    pub(super) fn new(image: &'a Image) -> Self {
        Self { image }
    }

    /// Runs the agent of the copy, or ends with [`NOT_THERE`].
    pub(super) fn run(&self) -> String {
        // The time of the last use protects the copy from later pushes.
        format!(
            r#"{}; is_there || exit {NOT_THERE}; touch -c "$f" 2>/dev/null; exec "$f" agent"#,
            self.prelude()
        )
    }

    /// Saves the copy from standard input, unless it is there.
    pub(super) fn receive(&self) -> String {
        let Image { length, sha256 } = self.image;
        [
            self.prelude(),
            "is_there && exit 0".into(),
            r#"mkdir -p "$d" && t=$(mktemp "$d/push.XXXXXX") || exit 1"#.into(),
            r#"trap 'rm -f "$t"' EXIT; trap 'exit 1' HUP INT TERM"#.into(),
            r#"cat >"$t" || exit 1"#.into(),
            r#"n=$(wc -c <"$t")"#.into(),
            format!(
                r#"[ $n -eq {length} ] || {{ echo "only $n of {length} bytes arrived" >&2; exit 1; }}"#
            ),
            format!(
                r#"if command -v sha256sum >/dev/null && [ "$(sha256sum <"$t" | cut -c 1-64)" != {sha256} ]; then echo "the copy differs from the original" >&2; exit 1; fi"#
            ),
            r#"chmod 700 "$t" && mv "$t" "$f" || exit 1"#.into(),
            r#"find "$d" -type f '(' -name 'push.*' -mtime +0 -o -name 'elasticrun-*' -mtime +30 ')' -exec rm -f {} ';' 2>/dev/null"#.into(),
            "exit 0".into(),
        ]
        .join("\n")
    }

    /// Names the directory `d` and the file `f`, and defines whether it is there.
    fn prelude(&self) -> String {
        let Image { length, sha256 } = self.image;
        format!(
            r#"d="$HOME/{DIRECTORY}"; f="$d/elasticrun-{}-{}"; is_there() {{ [ -x "$f" ] && [ $(wc -c <"$f") -eq {length} ]; }}"#,
            env!("CARGO_PKG_VERSION"),
            &sha256[..16],
        )
    }
}

#[cfg(test)]
mod tests;
