//! A data set: files in the order of their names, and the row groups in them, numbered through.
//!
//! Opening reads the footers, and nothing else. What was seen then is what is read later: a file that has
//! another size or version when a row group of it opens is an error by name.

mod footer;
mod note;
mod partition;
mod schema;

use std::{path::PathBuf, sync::Arc};

use arrow_schema::{Schema, SchemaRef};
use parquet::file::metadata::RowGroupMetaData;

use crate::{
    error::{Error, Problem, Result},
    storage::{self, Cached, DiskCache, Local, Storage},
};
use footer::{DataFile, footer_bytes, read_footers};
pub(crate) use partition::Constant;
use partition::Partitions;
pub(crate) use schema::{Selection, Source};

/// See the module.
#[derive(Debug)]
pub struct Dataset {
    storage: Arc<dyn Storage>,
    files: Vec<DataFile>,
    groups: Vec<RowGroup>,
    partitions: Partitions,
    /// Of the first file, and behind it what the names of directories say; nothing if there is no file.
    schema: Option<SchemaRef>,
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
        Self::open_in(Arc::new(Local::new(places)))
    }

    /// Opens places of this host as [`Self::open_local`] does, with `file://` before them or not, or addresses of
    /// an object store: `s3://bucket/prefix`, `gs://bucket/prefix`. What is below a prefix is meant, or the one
    /// object of that name. Credentials and endpoints come from the environment, by the names that the clouds'
    /// own tools use. All places are of one kind. What is read is kept in the cache, if there is one.
    ///
    /// # Errors
    /// As [`Self::open_local`]; an address of an unknown kind, or of another kind than the first; a directory
    /// of the cache that cannot be made.
    pub fn open(places: &[String], cache: Option<DiskCache>) -> Result<Self> {
        let storage = storage::open(places)?;
        match cache {
            None => Self::open_in(storage),
            Some(cache) => Self::open_in(Arc::new(Cached::new(storage, cache)?)),
        }
    }

    fn open_in(storage: Arc<dyn Storage>) -> Result<Self> {
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
        let partitions = Partitions::of(files.iter().map(|file| storage.below(&file.info)));
        let schema = files.first().map(|first| {
            let in_files = first.metadata.schema().fields();
            let in_names = partitions
                .fields()
                .filter(|field| in_files.find(field.name()).is_none());
            Schema::new(in_files.iter().chain(in_names).cloned().collect::<Vec<_>>()).into()
        });
        Ok(Self {
            storage,
            files,
            groups,
            partitions,
            schema,
        })
    }

    /// The data set without the row groups that `keep` says no to. The others are numbered anew. What is left is
    /// another data set: workers have to agree about it, and an epoch is all rows of it.
    #[must_use]
    pub fn select(mut self, mut keep: impl FnMut(u32, &RowGroup) -> bool) -> Self {
        let mut number = 0;
        self.groups.retain(|group| {
            number += 1;
            keep(number - 1, group)
        });
        self
    }

    /// A note that a writer left for all files of a data set: the value of `key` in the footer of the file `name`
    /// at the top of the first place, such as `_common_metadata`. Nothing if there is no such file or key. Places
    /// are those of [`Self::open`].
    ///
    /// # Errors
    /// The file cannot be read, or is no Parquet file.
    pub fn note(places: &[String], name: &str, key: &str) -> Result<Option<Vec<u8>>> {
        let storage = storage::open(places)?;
        let Some(info) = storage.beside(name)? else {
            return Ok(None);
        };
        let found = footer_bytes(&*storage, &info).and_then(|footer| {
            let damaged = || Problem::BadFooter("its notes cannot be read".to_owned());
            let value = note::find(&footer, key).ok_or_else(damaged)?;
            Ok(value.map(<[u8]>::to_vec))
        });
        found.map_err(|error| error.in_file(&info.name))
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

    /// The schema of the first file, and behind it the columns that are in the names of directories
    /// (`day=3/x.parquet`); nothing if there is no file.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The values of a file that are in the names of its directories.
    pub(crate) fn partitions(&self) -> &Partitions {
        &self.partitions
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
