//! `--output-filename`: DIR/rank.NNN/{stdout,stderr}, DIR/server.NNN of parameter servers, and the files of [`Filtered`].
//!
//! - F1 A restarted worker appends after a line that names its start. Nothing is truncated.
//! - F2 A file has the bytes of its rank. Both files exist from the first bytes of the rank on.
//! - F3 A file takes at most [`CAP`] bytes from one job, so that the endless output of one worker does not fill the disk.
//! - F4 Links below DIR are not followed, so that no other file is changed. DIR itself may be a link.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::SystemTime,
};

use elasticrun_protocol::{HostId, Process, Rank, control::Output};
use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::{Mode, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::{
    filtered::Filtered,
    queue::{Piece, Receiver},
};
use crate::{config, report::Terminal};

/// Size limit of the output of one job in one file: 1 GiB.
const CAP: u64 = 1 << 30;

/// The largest number of bytes of one write, after which the progress is noted.
const MAX_WRITE: usize = 16 << 10;

/// The open files of a job.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    directory: OwnedFd,
    open: BTreeMap<Owner, [Stream; 2]>,
    cap: u64,
    /// The lines of each stream that pass its filters, if it has any.
    filtered: [Option<Filtered>; 2],
}

#[derive(Debug)]
struct Stream {
    path: PathBuf,
    /// `None` after a failed write, or when the limit is reached.
    file: Option<File>,
    written: u64,
    writer: Option<(HostId, Process)>,
}

impl Files {
    /// Creates the directory and checks that it is writable.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let directory = open(path, directory_flags(), Mode::empty())?;
        probe(&directory)?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            open: BTreeMap::new(),
            cap: CAP,
            filtered: [None, None],
        })
    }

    /// Also opens the files of the filters in the settings.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn with_filters(mut self, settings: &config::Output) -> io::Result<Self> {
        let filters = [&settings.stdout_filters, &settings.stderr_filters];
        let names = ["filtered_stdout.log", "filtered_stderr.log"];
        for ((filters, name), filtered) in filters.into_iter().zip(names).zip(&mut self.filtered) {
            let Some(filters) = filters.clone() else {
                continue;
            };
            let file = (self.path.join(name), open_in(&self.directory, name)?);
            *filtered = Some(Filtered::new(filters, &settings.prefix, file, self.cap));
        }
        Ok(self)
    }

    /// Writes all pieces of the queue.
    pub(super) fn run(mut self, mut queue: Receiver, terminal: &Terminal) {
        while let Some(item) = queue.next() {
            for warning in self.append(&item.piece, || queue.progress.advance()) {
                terminal.line(&warning);
            }
            queue.progress.written(&item.piece);
        }
        for filtered in self.filtered.iter_mut().flatten() {
            if let Some(warning) = filtered.end() {
                terminal.line(&warning);
            }
        }
    }

    /// Appends a piece to the file of its stream. Returns a warning for each file that is given up. Calls `progress` after
    /// each write.
    fn append(&mut self, piece: &Piece, progress: impl FnMut()) -> Vec<String> {
        let mut warnings = Vec::new();
        let output = &piece.output;
        let (path, directory) = (&self.path, &self.directory);
        let streams = self
            .open
            .entry(Owner::of(output))
            .or_insert_with_key(|owner| open_streams(path, directory, *owner, &mut warnings));
        let stream = &mut streams[usize::from(output.stderr)];
        let writer = (piece.host.clone(), output.process);
        if let Err(error) = stream.write(writer, output.as_bytes(), self.cap, progress) {
            warnings.push(stream.give_up(&error));
        }
        if let Some(filtered) = &mut self.filtered[usize::from(output.stderr)] {
            warnings.extend(filtered.add(piece, SystemTime::now()));
        }
        warnings
    }
}

/// Whose output a directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Rank(Option<Rank>),
    Server(u32),
}

impl Owner {
    fn of(output: &Output) -> Self {
        let server = output.process.server_number();
        server.map_or(Self::Rank(output.rank), Self::Server)
    }
}

/// The name of the directory.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(Some(rank)) => write!(f, "rank.{:03}", rank.0),
            Self::Rank(None) => f.write_str("rank.none"),
            Self::Server(number) => write!(f, "server.{number:03}"),
        }
    }
}

/// Opens the directory and both files of a rank or server.
fn open_streams(
    path: &Path,
    directory: &OwnedFd,
    owner: Owner,
    warnings: &mut Vec<String>,
) -> [Stream; 2] {
    let rank = owner.to_string();
    ["stdout", "stderr"].map(|name| {
        let mut stream = Stream {
            path: path.join(&rank).join(name),
            file: None,
            written: 0,
            writer: None,
        };
        match open_file(directory, &rank, name) {
            Ok(file) => stream.file = Some(file),
            Err(error) => warnings.push(stream.give_up(&error)),
        }
        stream
    })
}

fn open_file(directory: &OwnedFd, rank: &str, name: &str) -> io::Result<File> {
    match mkdirat(directory, rank, Mode::from_bits_truncate(0o777)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = openat(
        directory,
        rank,
        directory_flags() | OFlag::O_NOFOLLOW,
        Mode::empty(),
    );
    open_in(&directory.map_err(link_error)?, name)
}

/// Opens a file in a directory to append to it.
fn open_in(directory: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_APPEND | OFlag::O_NOFOLLOW;
    let mode = Mode::from_bits_truncate(0o666);
    let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    let file = openat(directory, name, flags, mode);
    Ok(File::from(file.map_err(link_error)?))
}

fn directory_flags() -> OFlag {
    OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC
}

/// The error of an open that follows no link.
fn link_error(error: Errno) -> io::Error {
    match error {
        Errno::ELOOP => io::Error::other("it is a symbolic link, which is not followed"),
        error => error.into(),
    }
}

/// Creates a file and removes it.
fn probe(directory: &OwnedFd) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let name = format!(".elasticrun-probe-{:016x}", u64::from_le_bytes(random));
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    drop(openat(
        directory,
        name.as_str(),
        flags,
        Mode::from_bits_truncate(0o600),
    )?);
    unlinkat(directory, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
    Ok(())
}

impl Stream {
    /// Appends bytes, up to the limit of the file.
    fn write(
        &mut self,
        writer: (HostId, Process),
        bytes: &[u8],
        cap: u64,
        mut progress: impl FnMut(),
    ) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        if self.writer.as_ref() != Some(&writer) {
            let (host, process) = &writer;
            let is_first = self.writer.is_none();
            if process.generation.0 > 1 || !is_first || file.metadata()?.len() > 0 {
                writeln!(file, "--- {host}, {process} ---")?;
            }
            self.writer = Some(writer);
        }
        let fits = usize::try_from(cap - self.written).unwrap_or(usize::MAX);
        let fits = fits.min(bytes.len());
        for part in bytes[..fits].chunks(MAX_WRITE) {
            file.write_all(part)?;
            progress();
        }
        self.written += fits as u64;
        if fits < bytes.len() {
            return Err(io::Error::other(format!(
                "it holds {cap} bytes of this job, the most it may"
            )));
        }
        Ok(())
    }

    /// Closes the file. Returns the warning.
    fn give_up(&mut self, error: &io::Error) -> String {
        self.file = None;
        format!(
            "--output-filename {}: {error}; what this rank prints is no longer kept there",
            self.path.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{super::queue::tests::piece, *};

    fn append(files: &mut Files, generation: u32, stderr: bool, bytes: &[u8]) -> Vec<String> {
        files.append(&piece(generation, stderr, bytes), || {})
    }

    #[test]
    fn a_restarted_rank_appends_under_its_new_start() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path()).unwrap();
        assert!(append(&mut files, 1, false, b"one\n").is_empty());
        assert!(append(&mut files, 2, false, b"two\n").is_empty());
        let read = || fs::read_to_string(directory.path().join("rank.001/stdout")).unwrap();
        assert_eq!(read(), "one\n--- a, local rank 0 (start 2) ---\ntwo\n");
        let mut again = Files::create(directory.path()).unwrap();
        append(&mut again, 1, false, b"three\n");
        let written = read();
        assert!(
            written.ends_with("two\n--- a, local rank 0 (start 1) ---\nthree\n"),
            "{written}"
        );
    }

    #[test]
    fn a_file_has_the_bytes_of_its_rank_and_both_files_exist() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path()).unwrap();
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for part in bytes.chunks(777) {
            assert!(append(&mut files, 1, true, part).is_empty());
        }
        let read = |name| fs::read(directory.path().join("rank.001").join(name)).unwrap();
        assert!(read("stderr") == bytes);
        assert!(read("stdout").is_empty());
        let all = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(all, 1, "the probe is removed");
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        fs::write(&precious, "now").unwrap();
        let out = directory.path().join("out");
        fs::create_dir_all(out.join("rank.001")).unwrap();
        symlink(&precious, out.join(".elasticrun-probe")).unwrap();
        symlink(&precious, out.join("rank.001/stdout")).unwrap();
        // The directory itself may be a link.
        let link = directory.path().join("link");
        symlink(&out, &link).unwrap();
        let mut files = Files::create(&link).unwrap();
        let warnings = append(&mut files, 1, false, b"one\n");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("symbolic link"), "{warnings:?}");
        assert!(
            append(&mut files, 1, false, b"two\n").is_empty(),
            "said once"
        );
        assert!(append(&mut files, 1, true, b"error\n").is_empty());
        assert_eq!(
            fs::read_to_string(out.join("rank.001/stderr")).unwrap(),
            "error\n"
        );
        // A directory that is a link gives up both files.
        fs::remove_dir_all(out.join("rank.001")).unwrap();
        symlink(directory.path(), out.join("rank.001")).unwrap();
        let mut files = Files::create(&link).unwrap();
        assert_eq!(append(&mut files, 1, false, b"one\n").len(), 2);
        assert!(!directory.path().join("stdout").exists());
        assert_eq!(fs::read_to_string(precious).unwrap(), "now");
    }

    #[test]
    fn a_file_at_its_limit_is_full_and_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::create(directory.path()).unwrap();
        files.cap = 5;
        assert!(append(&mut files, 1, false, b"one\n").is_empty());
        let warnings = append(&mut files, 1, false, b"two\n");
        assert!(warnings[0].contains("5 bytes of this job"), "{warnings:?}");
        assert!(append(&mut files, 1, false, b"three\n").is_empty());
        let written = fs::read_to_string(directory.path().join("rank.001/stdout")).unwrap();
        assert_eq!(written, "one\nt");
    }
}
