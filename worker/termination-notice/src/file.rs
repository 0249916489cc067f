//! A file whose appearance is a notice, for what no other source knows.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use elasticrun_protocol::{Notice, NoticeKind};
use tokio::{fs, time::sleep};

use crate::watch::Sender;

/// A file system of several hosts tells nobody of changes, so the file is looked for.
const PERIOD: Duration = Duration::from_millis(100);

/// Looks for the file as long as somebody listens; once it has gone it may come again.
pub(crate) async fn watch(path: PathBuf, sender: Sender) {
    let mut was_there = false;
    while !sender.is_closed() {
        let found = look(&path).await;
        if let Some(within) = found.filter(|_| !was_there) {
            let kind = NoticeKind::File;
            sender.tell(Notice { kind, within }).await;
        }
        was_there = found.is_some();
        sleep(PERIOD).await;
    }
}

/// Whether the file is there, and the time that its text names.
async fn look(path: &Path) -> Option<Option<Duration>> {
    match fs::read_to_string(path).await {
        Ok(text) => Some(text.trim().parse().ok().map(Duration::from_secs)),
        Err(error) if error.kind() == ErrorKind::InvalidData => Some(None),
        Err(_) => None,
    }
}
