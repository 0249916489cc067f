//! A file whose appearance is a notice, for events that no other source reports.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use elasticrun_protocol::{Notice, NoticeKind};
use tokio::{fs, time::sleep};

use crate::sender::Sender;

/// The interval of polls. Network file systems report no changes, so the file is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Polls for the file until the receiver is gone. A file that disappears and appears again is another notice.
pub(crate) async fn watch(path: PathBuf, sender: Sender) {
    let mut was_there = false;
    while !sender.is_closed() {
        let found = look(&path).await;
        if let Some(within) = found.filter(|_| !was_there) {
            let kind = NoticeKind::File;
            sender.send(Notice { kind, within }).await;
        }
        was_there = found.is_some();
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether the file exists, and the seconds in its text, if any.
async fn look(path: &Path) -> Option<Option<Duration>> {
    match fs::read_to_string(path).await {
        Ok(text) => Some(text.trim().parse().ok().map(Duration::from_secs)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Some(None),
        Err(_) => None,
    }
}
