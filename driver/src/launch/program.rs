//! The program of this driver, which is also the program of its agents.

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use sha2::{Digest as _, Sha256};

/// The file of the running program. It is the same file after an upgrade has replaced the one at [`Program::path`].
pub(super) const RUNNING: &str = "/proc/self/exe";

/// Where this program was when its driver started, and what it consists of.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    /// Read when the first launch needs it. The error is that of reading the file.
    image: Arc<OnceLock<Result<Image, String>>>,
}

/// Length and hash of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Image {
    /// In bytes.
    pub(super) length: u64,
    /// SHA-256, as 64 hexadecimal digits.
    pub(super) sha256: String,
}

impl Program {
    /// The program of this process. Call it at the start of the driver: the kernel marks the path of a file that is
    /// replaced later as deleted.
    pub(super) fn current() -> Self {
        Self {
            path: env::current_exe().unwrap_or_else(|_| "elasticrun".into()),
            image: Arc::default(),
        }
    }

    /// The path at the start of the driver. Another program may be there by now.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Length and hash of the running program. The first call reads all of it and blocks.
    ///
    /// # Errors
    /// The program cannot be read.
    pub(super) fn image(&self) -> io::Result<&Image> {
        let read = || {
            let image = File::open(RUNNING).and_then(Image::read);
            image.map_err(|error| format!("cannot read {RUNNING}: {error}"))
        };
        let image = self.image.get_or_init(read);
        image.as_ref().map_err(|why| io::Error::other(why.as_str()))
    }
}

impl Image {
    /// Reads a program to its end.
    pub(super) fn read(mut file: impl Read) -> io::Result<Self> {
        let (mut hash, mut length) = (Sha256::new(), 0);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let n = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hash.update(&buffer[..n]);
            length += n as u64;
        }
        let digits = |byte: &u8| format!("{byte:02x}");
        let sha256 = hash.finalize().iter().map(digits).collect();
        Ok(Self { length, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_that_of_the_whole_file() {
        let image = Image::read(&b"abc"[..]).unwrap();
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((image.length, image.sha256.as_str()), (3, sha256));
    }
}
