//! A sealed copy of a library in memory, which is loaded instead of the file.
//!
//! A write to a mapped file would change the running code, or cause a bus error. A sealed memory file cannot change.

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

/// The size limit of a plugin. It bounds the memory that a wrong path costs.
const MAX_IMAGE: u64 = 1 << 30;

/// A sealed copy of a library.
#[derive(Debug)]
pub(crate) struct Image(File);

impl From<File> for Image {
    /// A copy that another process has sealed.
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
    elf::check(&bytes).map_err(|why| Error::BadImage {
        path: path.to_owned(),
        why,
    })?;
    allow(Hash::digest(&bytes))?;
    seal(path, &bytes).map(Image).map_err(|why| Error::Io {
        path: path.to_owned(),
        why,
    })
}

/// The content of a plain file that is not world-writable.
pub(crate) fn trusted(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |why| Error::Io {
        path: path.to_owned(),
        why,
    };
    // Non-blocking, so that the open of a pipe does not wait for a writer.
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

/// Refuses a file that any user may write or replace.
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
    let metadata = fs::metadata(directory).map_err(|why| Error::Io {
        path: directory.to_owned(),
        why,
    })?;
    if metadata.mode() & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        return Err(Error::WorldWritable {
            path: directory.to_owned(),
        });
    }
    Ok(())
}

fn seal(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // The name appears in /proc/PID/maps.
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('\0', "");
    let name = CString::new(name)?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    // Newer kernels require MFD_EXEC if executable memory files are restricted. Older ones do not know it.
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
    /// A path to the image for the loader of this process.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// Replaces the path of the image in a message of the loader by that of the file.
    pub(super) fn with_file_path(&self, message: &str, path: &Path) -> String {
        let image = self.path();
        message.replace(&*image.to_string_lossy(), &path.to_string_lossy())
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.0.into()
    }
}
