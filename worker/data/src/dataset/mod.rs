//! A data set: files sorted by name, and their row groups, numbered across all files.
//!
//! Opening only reads the footers. A file whose size or version has changed when one of its row groups is read is an
//! error.

#[cfg(any(test, fuzzing))]
mod any_input;
mod footer;
mod footer_check;
mod merge;
mod note;
mod partition;
mod schema;

use std::{path::PathBuf, sync::Arc};

use arrow_schema::{Fields, Schema, SchemaRef};
use parquet::file::metadata::RowGroupMetaData;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    error::{Error, Problem, Result},
    storage::{self, CachedStorage, DiskCache, LocalStorage, Storage, StorageOptions},
};
#[cfg(any(test, fuzzing))]
pub use any_input::check_any_footer;
use footer::{DataFile, file_end, read_footers};
pub(crate) use merge::widen;
use partition::PartitionColumns;
pub(crate) use partition::PartitionValue;
pub(crate) use schema::{ColumnSource, Selection};

/// Files sorted by name, and their row groups.
#[derive(Debug)]
pub struct Dataset {
    storage: Arc<dyn Storage>,
    files: Vec<DataFile>,
    groups: Vec<RowGroup>,
    partitions: PartitionColumns,
    /// The schema of the first file, or of all files if schemas are merged, followed by partition columns; `None` if there is
    /// no file.
    schema: Option<SchemaRef>,
    merges_schemas: bool,
}

/// A row group of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowGroup {
    /// Index of its file; see [`Dataset::file_name`].
    pub file: u32,
    /// Index within the file.
    pub index: u32,
    /// Number of rows.
    pub rows: u32,
    /// Uncompressed bytes of all columns.
    pub bytes: u64,
}

impl Dataset {
    /// Opens files of this host. Each path is a file, or a directory that is searched recursively. Names that begin
    /// with `_` or `.` are ignored, as writers use them for metadata.
    ///
    /// # Errors
    /// If a path does not exist or may not be read, or if a file is not a Parquet file.
    pub fn open_local(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Self> {
        let paths = paths.into_iter().map(Into::into).collect();
        Self::open_in(Arc::new(LocalStorage::new(paths)))
    }

    /// Opens paths of this host, with or without `file://`, as [`Self::open_local`] does, or addresses of an object
    /// store: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`. An address is a prefix, or the name of one object.
    /// Credentials and endpoints come from the environment variables of the cloud's own tools. All paths must be of
    /// one kind. The cache, if given, stores what is read.
    ///
    /// # Errors
    /// As [`Self::open_local`]. If an address has an unknown kind or another kind than the first, or if the directory
    /// of the cache cannot be created.
    pub fn open(paths: &[String], cache: Option<DiskCache>) -> Result<Self> {
        Self::open_with(paths, cache, &StorageOptions::default())
    }

    /// As [`Self::open`], with options of the object store, which precede the environment.
    ///
    /// # Errors
    /// As [`Self::open`], and if the object store has no such option or it is invalid.
    pub fn open_with(
        paths: &[String],
        cache: Option<DiskCache>,
        options: &StorageOptions,
    ) -> Result<Self> {
        let storage = storage::open(paths, options)?;
        match cache {
            None => Self::open_in(storage),
            Some(cache) => Self::open_in(Arc::new(CachedStorage::new(storage, cache)?)),
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
        let partitions = PartitionColumns::from_names(
            files.iter().map(|file| storage.relative_name(&file.info)),
        );
        let schema = (files.first())
            .map(|first| with_partitions(first.metadata.schema().fields(), &partitions));
        Ok(Self {
            storage,
            files,
            groups,
            partitions,
            schema,
            merges_schemas: false,
        })
    }

    /// Takes the columns of all files, in the order in which they appear. In files that lack a column it is null. Numbers may
    /// have different widths: the column has the widest type. Without this, files must agree in the columns that are read.
    ///
    /// # Errors
    /// If two files have a column with types that are not numbers of one kind; it names both.
    pub fn merge_schemas(mut self) -> Result<Self> {
        if let Some(fields) = merge::fields(&self.files)? {
            self.schema = Some(with_partitions(&fields, &self.partitions));
        }
        self.merges_schemas = true;
        Ok(self)
    }

    /// Keeps the row groups for which `keep` returns true, and renumbers them. The result is another data set: all
    /// workers must select the same row groups, and an epoch only has their rows.
    #[must_use]
    pub fn select(mut self, mut keep: impl FnMut(u32, &RowGroup) -> bool) -> Self {
        let mut number = 0;
        self.groups.retain(|group| {
            number += 1;
            keep(number - 1, group)
        });
        self
    }

    /// Metadata of the whole data set: the value of `key` in the footer of the file `name` in the first path, such as
    /// `_common_metadata`. `None` if the file or the key does not exist. Paths and options are as for
    /// [`Self::open_with`].
    ///
    /// # Errors
    /// If the file cannot be read, or is not a Parquet file.
    pub fn note(
        paths: &[String],
        name: &str,
        key: &str,
        options: &StorageOptions,
    ) -> Result<Option<Vec<u8>>> {
        let storage = storage::open(paths, options)?;
        let Some(info) = storage.find_at_root(name)? else {
            return Ok(None);
        };
        let found = file_end(&*storage, &info).and_then(|end| {
            let damaged = || Problem::BadFooter("its notes cannot be read".to_owned());
            let value = note::find(&end.footer, key).ok_or_else(damaged)?;
            Ok(value.map(<[u8]>::to_vec))
        });
        found.map_err(|error| error.in_file(&info.name))
    }

    /// All row groups: by file, then in file order.
    pub fn groups(&self) -> &[RowGroup] {
        &self.groups
    }

    /// Number of rows of all row groups.
    pub fn rows(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.rows)).sum()
    }

    /// Identifies the data set, wherever it is stored: the files, and the rows and bytes of the row groups. Files are
    /// identified by their name below the path, their size and their last 64 KiB.
    pub fn identity(&self) -> u64 {
        let mut hash = Xxh3::new();
        for group in &self.groups {
            hash.update(&self.files[group.file as usize].digest.to_le_bytes());
            hash_shape(&mut hash, group);
        }
        hash.digest()
    }

    /// Identifies the data set by the rows and bytes of the row groups, as earlier releases did.
    pub(crate) fn shape(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.groups
            .iter()
            .for_each(|group| hash_shape(&mut hash, group));
        hash.digest()
    }

    /// Number of files, including empty ones.
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

    /// The schema of the first file, or of all files after [`Self::merge_schemas`], followed by the columns from directory names
    /// (`day=3/x.parquet`). `None` if there is no file.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// The columns from directory names.
    pub(crate) fn partitions(&self) -> &PartitionColumns {
        &self.partitions
    }

    pub(crate) fn merges_schemas(&self) -> bool {
        self.merges_schemas
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

/// Columns of files, followed by those from directory names.
fn with_partitions(in_files: &Fields, partitions: &PartitionColumns) -> SchemaRef {
    let in_names = partitions
        .fields()
        .filter(|field| in_files.find(field.name()).is_none());
    Schema::new(in_files.iter().chain(in_names).cloned().collect::<Vec<_>>()).into()
}

fn hash_shape(hash: &mut Xxh3, group: &RowGroup) {
    hash.update(&group.file.to_le_bytes());
    hash.update(&group.rows.to_le_bytes());
    hash.update(&group.bytes.to_le_bytes());
}

fn number_of_rows(group: &RowGroupMetaData) -> Result<u32, Problem> {
    u32::try_from(group.num_rows()).map_err(|_| Problem::TooManyRows {
        rows: group.num_rows(),
        max: u32::MAX,
    })
}
