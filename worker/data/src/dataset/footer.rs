//! The footers of files: row groups, column types and key-value metadata.

use std::{collections::BTreeSet, sync::Arc, thread};

use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    errors::ParquetError,
    file::{
        FOOTER_SIZE,
        metadata::{FooterTail, ParquetMetaDataReader},
    },
};
use xxhash_rust::xxh3::Xxh3;

use super::footer_check;
use crate::{
    caught_panic,
    error::{Error, Problem, Result},
    storage::{FileInfo, Storage},
};

/// A file and its footer.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) info: FileInfo,
    pub(crate) metadata: ArrowReaderMetadata,
    /// The leaf columns that are encrypted, by index.
    pub(crate) encrypted: BTreeSet<usize>,
    /// Identifies the file: a hash of its name below the path of the data set, of its size and of its end, which holds
    /// the footer. A copy of the data set elsewhere has the same.
    pub(crate) digest: u64,
}

/// Reading footers is bound by the latency of the storage, not by the processor.
const FOOTER_READERS: usize = 16;

pub(super) fn read_footers(storage: &dyn Storage, infos: Vec<FileInfo>) -> Result<Vec<DataFile>> {
    let share = infos.len().div_ceil(FOOTER_READERS).max(1);
    let read = |infos: &[FileInfo]| -> Result<Vec<DataFile>> {
        infos
            .iter()
            .map(|info| read_footer(storage, info).map_err(|error| error.in_file(&info.name)))
            .collect()
    };
    if share == 1 && infos.len() < 4 {
        return read(&infos);
    }
    let shares: Vec<Result<Vec<DataFile>>> = thread::scope(|scope| {
        let readers: Vec<_> = infos
            .chunks(share)
            .map(|infos| scope.spawn(|| read(infos)))
            .collect();
        readers
            .into_iter()
            .map(|reader| {
                reader
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    let mut files = Vec::with_capacity(infos.len());
    for share in shares {
        files.extend(share?);
    }
    Ok(files)
}

/// Bytes at the end of a file that are read first. Most footers fit.
const FOOTER_GUESS: u64 = 64 << 10;

fn read_footer(storage: &dyn Storage, info: &FileInfo) -> Result<DataFile> {
    let FileEnd { end, footer } = file_end(storage, info)?;
    let checked = footer_check::check(&footer).map_err(|why| Problem::BadFooter(why.to_owned()))?;
    let metadata = caught_panic::catch(|| decode(&footer))
        .unwrap_or_else(|panic| Err(Problem::BadFooter(panic).into()))?;
    Ok(DataFile {
        info: info.clone(),
        metadata,
        encrypted: checked.encrypted,
        digest: digest(storage.relative_name(info), info, &end, &footer),
    })
}

fn digest(name: &str, info: &FileInfo, end: &[u8], footer: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    // The path of a data set may be the file itself.
    let name = match name {
        "" => info.name.rsplit('/').next().unwrap_or_default(),
        name => name,
    };
    for part in [name.as_bytes(), end, footer] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(&info.size.to_le_bytes());
    hash.digest()
}

pub(super) fn decode(footer: &[u8]) -> Result<ArrowReaderMetadata> {
    let metadata = ParquetMetaDataReader::decode_metadata(footer).map_err(bad)?;
    ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new()).map_err(bad)
}

/// The last bytes of a file.
pub(super) struct FileEnd {
    /// At most [`FOOTER_GUESS`] bytes.
    end: Bytes,
    /// The undecoded footer.
    pub(super) footer: Bytes,
}

pub(super) fn file_end(storage: &dyn Storage, info: &FileInfo) -> Result<FileEnd> {
    let tail = info.size.saturating_sub(FOOTER_GUESS);
    let end = read_one(storage, info, tail..info.size)?;
    let Some(last) = end.last_chunk::<FOOTER_SIZE>() else {
        let short = format!("{} bytes are too few", info.size);
        return Err(Problem::BadFooter(short).into());
    };
    let tail_of_footer = FooterTail::try_new(last).map_err(bad)?;
    if tail_of_footer.is_encrypted_footer() {
        return Err(Problem::Encrypted.into());
    }
    let length = tail_of_footer.metadata_length() as u64;
    let footer_end = info.size - FOOTER_SIZE as u64;
    let Some(start) = footer_end.checked_sub(length) else {
        let long = format!("its footer of {length} bytes is longer than the file");
        return Err(Problem::BadFooter(long).into());
    };
    let footer = if start >= tail {
        end.slice((start - tail) as usize..(footer_end - tail) as usize)
    } else {
        read_one(storage, info, start..footer_end)?
    };
    Ok(FileEnd { end, footer })
}

fn bad(error: ParquetError) -> Error {
    Problem::BadFooter(error.to_string()).into()
}

fn read_one(storage: &dyn Storage, info: &FileInfo, range: std::ops::Range<u64>) -> Result<Bytes> {
    let mut read = storage.read(info, &[range])?;
    Ok(read.pop().unwrap_or_default())
}
