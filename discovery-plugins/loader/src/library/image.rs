//! The copy of a library that is loaded in its place: in memory, sealed.
//!
//! A file that is mapped by the loader is not safe from who writes to it: the running code changes, or the
//! process gets a bus error. A sealed memory file cannot change.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};

use super::{Error, elf};
use crate::Hash;

/// No plugin is that large; it bounds the memory that a wrong path costs.
const MAX_IMAGE: u64 = 1 << 30;

/// A sealed copy of a library.
#[derive(Debug)]
pub(crate) struct Image(File);

impl From<File> for Image {
    /// A copy that another process made.
    fn from(copy: File) -> Self {
        Self(copy)
    }
}

impl AsRawFd for Image {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Checks a file and copies it (invariants D1 and D2).
pub(crate) fn sealed_copy(
    path: &Path,
    allow: impl FnOnce(Hash) -> Result<(), Error>,
) -> Result<Image, Error> {
    let bytes = trusted(path)?;
    elf::check(&bytes).map_err(|source| Error::BadImage {
        path: path.to_owned(),
        source,
    })?;
    allow(Hash::of(&bytes))?;
    seal(path, &bytes).map(Image).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

/// What is in a plain file that not everyone may write to.
pub(crate) fn trusted(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    // Not to wait for a writer, should it be a pipe.
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path);
    let mut file = open.map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MAX_IMAGE {
        return Err(Error::NotAFile {
            path: path.to_owned(),
        });
    }
    refuse_world_writable(path, &metadata)?;
    let mut bytes = Vec::with_capacity(metadata.len() as usize);
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Everyone may write to the file, or put another one in its place.
fn refuse_world_writable(path: &Path, file: &fs::Metadata) -> Result<(), Error> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    if file.mode() & OTHERS_WRITE != 0 {
        return Err(Error::WorldWritable {
            path: path.to_owned(),
        });
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let metadata = fs::metadata(directory).map_err(|source| Error::Io {
        path: directory.to_owned(),
        source,
    })?;
    if metadata.mode() & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        return Err(Error::WorldWritable {
            path: directory.to_owned(),
        });
    }
    Ok(())
}

fn seal(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // The name shows in /proc/PID/maps.
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('\0', "");
    let name = CString::new(name)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Kernels that can forbid executable memory files want to be asked; older ones do not know the question.
    let fd = match memfd_create(
        name.as_c_str(),
        flags | MFdFlags::from_bits_retain(libc::MFD_EXEC),
    ) {
        Err(Errno::EINVAL) => memfd_create(name.as_c_str(), flags),
        result => result,
    }?;
    let mut copy = File::from(fd);
    copy.write_all(bytes)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&copy, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(copy)
}

impl Image {
    /// A path to it, for the loader of this process.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// A message of the loader with the name of the file in it.
    pub(super) fn named(&self, message: &str, path: &Path) -> String {
        let ours = self.path();
        message.replace(&*ours.to_string_lossy(), &path.to_string_lossy())
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.0.into()
    }
}
