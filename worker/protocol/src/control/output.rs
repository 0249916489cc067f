//! Output of workers, on a connection of its own.

use serde::{Deserialize, Serialize};

use crate::{Blob, HostId, Process, Rank};

/// A piece of a worker's output, on the output connection. The pieces of a stream together are its bytes: a piece may end
/// within a line, and nothing is added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Slot and start number.
    pub process: Process,
    /// Its rank when it wrote the piece; before its first round, the rank in its environment.
    pub rank: Option<Rank>,
    /// Standard error, not standard output.
    pub stderr: bool,
    /// The piece as text. If it is not UTF-8, the other bytes are replaced, for a reader that ignores `bytes`.
    pub text: String,
    /// The piece itself, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Blob>,
    /// Bytes of this stream before this piece that the agent dropped, because the driver did not take them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
    /// Counts the pieces of the sender ([`OutputOf::sender`]) from 1, over all its connections. 0 from an older agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
}

impl Output {
    /// A piece of these bytes, before which nothing was dropped.
    pub fn new(process: Process, rank: Option<Rank>, stderr: bool, bytes: Vec<u8>) -> Self {
        let (text, bytes) = match String::from_utf8(bytes) {
            Ok(text) => (text, None),
            Err(error) => {
                let bytes = error.into_bytes();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                (text, Some(Blob(bytes)))
            }
        };
        Self {
            process,
            rank,
            stderr,
            text,
            bytes,
            dropped: 0,
            number: 0,
        }
    }

    /// The bytes of the worker.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes
            .as_ref()
            .map_or(self.text.as_bytes(), |bytes| &bytes.0)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The first frame on the output connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputOf {
    /// The host whose output follows.
    pub host: HostId,
    /// A random number of the sender, which repeats pieces that the driver has not acknowledged over its next connection.
    /// The driver answers with [`OutputTaken`]. None from an older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u64>,
}

/// Acknowledges pieces of output. The driver sends it at the beginning of a connection, and after it has taken pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutputTaken {
    /// The number of the newest piece that the driver has taken, 0 if there is none.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, LocalRank, frame};

    #[test]
    fn output_is_its_bytes_on_the_wire() {
        let process = Process {
            local_rank: LocalRank(0),
            generation: Generation(1),
        };
        let all: Vec<u8> = (0..=255).collect();
        for bytes in ["é\r\n".as_bytes(), b"", b"\xc3", &all] {
            let sent = Output::new(process, Some(Rank(3)), true, bytes.to_vec());
            let frame = frame::to_frame(&sent).unwrap();
            let got: Output = frame::decode(&frame[4..]).unwrap();
            assert_eq!(got, sent);
            assert_eq!(got.as_bytes(), bytes);
            // An earlier reader shows the text.
            assert_eq!(got.text, String::from_utf8_lossy(bytes));
        }
    }
}
