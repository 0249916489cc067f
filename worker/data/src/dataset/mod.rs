//! A data set: files in the order of their names, and the row groups in them, numbered through.
//!
//! Opening reads the footers, and nothing else. What was seen then is what is read later: a file that has
//! another size or version when a row group of it opens is an error by name.

mod schema;

use std::{path::PathBuf, sync::Arc, thread};

use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::{
    arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions},
    errors::ParquetError,
    file::{
        FOOTER_SIZE,
        metadata::{FooterTail, ParquetMetaDataReader, RowGroupMetaData},
    },
};

use crate::{
    error::{Error, Problem, Result},
    storage::{FileInfo, Local, Storage},
};
pub(crate) use schema::Selection;

/// See the module.
#[derive(Debug)]
pub struct Dataset {
    storage: Arc<dyn Storage>,
    files: Vec<DataFile>,
    groups: Vec<RowGroup>,
}

/// A file and its footer.
#[derive(Debug)]
pub(crate) struct DataFile {
    pub(crate) info: FileInfo,
    pub(crate) metadata: ArrowReaderMetadata,
}

/// A row group of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Number of the file it is in; see [`Dataset::file_name`].
    pub file: u32,
    /// Its number within that file.
    pub index: u32,
    /// Number of rows.
    pub rows: u32,
    /// Bytes of all its columns, uncompressed.
    pub bytes: u64,
}

impl Dataset {
    /// Opens files of this host: each place is a file, or a directory whose files are meant, those below it
    /// too. Names that begin with `_` or `.` are left out, as writers keep notes there.
    ///
    /// # Errors
    /// A place that is missing or may not be read; a file that is no Parquet file.
    pub fn open_local(places: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Self> {
        let places = places.into_iter().map(Into::into).collect();
        Self::open(Arc::new(Local::new(places)))
    }

    pub(crate) fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        let files = read_footers(&*storage, storage.list()?)?;
        let mut groups = Vec::new();
        for (number, file) in files.iter().enumerate() {
            for (index, group) in file.metadata.metadata().row_groups().iter().enumerate() {
                let rows = number_of_rows(group).map_err(|problem| {
                    Error::from(problem)
                        .in_file(&file.info.name)
                        .in_row_group(index)
                })?;
                groups.push(RowGroup {
                    file: number as u32,
                    index: index as u32,
                    rows,
                    bytes: group.total_byte_size().max(0) as u64,
                });
            }
        }
        Ok(Self {
            storage,
            files,
            groups,
        })
    }

    /// All row groups: of the first file in its order, then of the second.
    pub fn groups(&self) -> &[RowGroup] {
        &self.groups
    }

    /// Number of rows in all groups.
    pub fn rows(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.rows)).sum()
    }

    /// Number of files, with those that hold no row.
    pub fn number_of_files(&self) -> usize {
        self.files.len()
    }

    /// Path or address of a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn file_name(&self, file: u32) -> &str {
        &self.files[file as usize].info.name
    }

    /// The schema of the first file; nothing if there is no file.
    pub fn schema(&self) -> Option<&SchemaRef> {
        Some(self.files.first()?.metadata.schema())
    }

    pub(crate) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(crate) fn files(&self) -> &[DataFile] {
        &self.files
    }

    pub(crate) fn file_of(&self, group: u32) -> &DataFile {
        &self.files[self.groups[group as usize].file as usize]
    }
}

fn number_of_rows(group: &RowGroupMetaData) -> Result<u32, Problem> {
    u32::try_from(group.num_rows()).map_err(|_| Problem::TooManyRows {
        rows: group.num_rows(),
        max: u32::MAX,
    })
}

/// Footers wait for the storage, and not for the processor.
const FOOTER_READERS: usize = 16;

fn read_footers(storage: &dyn Storage, infos: Vec<FileInfo>) -> Result<Vec<DataFile>> {
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

/// So much of the end is read at once; most footers fit.
const FOOTER_GUESS: u64 = 64 << 10;

fn read_footer(storage: &dyn Storage, info: &FileInfo) -> Result<DataFile> {
    let bad = |error: ParquetError| Error::from(Problem::BadFooter(error.to_string()));
    let tail = info.size.saturating_sub(FOOTER_GUESS);
    let end = read_one(storage, info, tail..info.size)?;
    let Some(last) = end.last_chunk::<FOOTER_SIZE>() else {
        let short = format!("{} bytes are too few", info.size);
        return Err(Problem::BadFooter(short).into());
    };
    let length = FooterTail::try_new(last).map_err(bad)?.metadata_length() as u64;
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
    let metadata = ParquetMetaDataReader::decode_metadata(&footer).map_err(bad)?;
    let metadata =
        ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new()).map_err(bad)?;
    Ok(DataFile {
        info: info.clone(),
        metadata,
    })
}

fn read_one(storage: &dyn Storage, info: &FileInfo, range: std::ops::Range<u64>) -> Result<Bytes> {
    let mut read = storage.read(info, &[range])?;
    Ok(read.pop().unwrap_or_default())
}
