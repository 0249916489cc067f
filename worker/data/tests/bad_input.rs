//! Errors of a reader for invalid data.

#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    io::{Seek, SeekFrom, Write},
    path::Path,
    sync::Arc,
};

use arrow_array::{ArrayRef, BinaryArray, Float32Array, Int32Array, Int64Array, RecordBatch};
use common::{
    WIDTH, all,
    craft::{Change, Craft, Pages, data_page, dictionary_page},
    drain, ids, reader, rows, three_files, write,
};
use elasticrun_data::{Dataset, Error, OnError, Piece, Problem, Reader, ReaderOptions};
use parquet::{
    basic::{BrotliLevel, Compression, ZstdLevel},
    file::reader::{FileReader, SerializedFileReader},
};

fn one_file(directory: &Path) -> (std::path::PathBuf, Arc<Dataset>) {
    let path = directory.join("x.parquet");
    write(&path, &rows(0, 300), 100);
    let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
    (path, dataset)
}

fn first_error(dataset: &Arc<Dataset>) -> Error {
    let mut reader = reader(
        dataset,
        ReaderOptions {
            shuffle: false,
            ..ReaderOptions::default()
        },
    );
    loop {
        match reader.next_batch(10) {
            Ok(batch) => assert!(batch.is_some(), "no error"),
            Err(error) => return error,
        }
    }
}

#[test]
fn an_empty_set_has_no_batch() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    assert_eq!((dataset.rows(), dataset.number_of_files()), (0, 0));
    assert!(
        reader(&dataset, ReaderOptions::default())
            .next_batch(1)
            .unwrap()
            .is_none()
    );

    write(&directory.path().join("x.parquet"), &rows(0, 0), 100);
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    assert_eq!((dataset.rows(), dataset.number_of_files()), (0, 1));
    assert!(
        reader(&dataset, ReaderOptions::default())
            .next_batch(1)
            .unwrap()
            .is_none()
    );
}

#[test]
fn files_of_writers_and_hidden_ones_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _) = one_file(directory.path());
    let below = directory.path().join("year=2026");
    fs::create_dir(&below).unwrap();
    fs::copy(path, below.join("y.parquet")).unwrap();
    fs::write(directory.path().join("_SUCCESS"), "").unwrap();
    fs::write(directory.path().join(".x.parquet.crc"), "sum").unwrap();
    let dataset = Dataset::open_local([directory.path()]).unwrap();
    assert_eq!((dataset.rows(), dataset.number_of_files()), (600, 2));
}

#[test]
fn one_row_and_uneven_groups() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("a.parquet"), &rows(0, 1), 100);
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let batches = drain(&mut reader(&dataset, ReaderOptions::default()), 10);
    assert_eq!(batches.iter().map(ids).collect::<Vec<_>>(), [[0]]);

    write(&directory.path().join("b.parquet"), &rows(1, 5000), 4000);
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let options = ReaderOptions {
        shuffle_rows: 50,
        ..ReaderOptions::default()
    };
    let mut seen: Vec<i64> = drain(&mut reader(&dataset, options), 64)
        .iter()
        .flat_map(ids)
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..5000).collect::<Vec<_>>());
}

#[test]
fn places_that_cannot_be_opened_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let error = Dataset::open_local([&missing]).unwrap_err();
    assert!(matches!(error.problem(), Problem::NotFound), "{error}");
    assert!(
        error.to_string().starts_with(missing.to_str().unwrap()),
        "{error}"
    );

    for (content, why) in [
        ("", "0 bytes"),
        ("too short", ""),
        ("PAR1 but no footer at the end", ""),
    ] {
        let path = directory.path().join("x.parquet");
        fs::write(&path, content).unwrap();
        let error = Dataset::open_local([&path]).unwrap_err();
        assert!(matches!(error.problem(), Problem::BadFooter(_)), "{error}");
        assert!(
            error.to_string().starts_with(path.to_str().unwrap()),
            "{error}"
        );
        assert!(error.to_string().contains(why), "{error}");
    }

    // A footer that is longer than its file.
    let path = directory.path().join("x.parquet");
    fs::write(&path, b"PAR1\xff\xff\xff\x00PAR1").unwrap();
    let error = Dataset::open_local([&path]).unwrap_err();
    assert!(
        error.to_string().contains("longer than the file"),
        "{error}"
    );
}

#[test]
fn storages_that_are_not_known_are_named() {
    let open = |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        Dataset::open(&paths, None).unwrap_err().to_string()
    };
    assert_eq!(
        open(&["ftp://x/y"]),
        "ftp://x/y: ftp is no storage that can be read; known are paths, file, s3, gs, az, abfs, hf, https"
    );
    assert_eq!(
        open(&["/x", "s3://y/z"]),
        "s3://y/z: the places of a data set are of one kind: file here, s3 there"
    );
    assert_eq!(
        open(&["s3://"]),
        "s3://: an address is scheme://bucket/prefix"
    );
}

#[test]
fn a_file_that_vanishes_changes_or_shrinks_is_an_error_when_a_group_of_it_opens() {
    let directory = tempfile::tempdir().unwrap();
    let (path, dataset) = one_file(directory.path());
    let whole = fs::read(&path).unwrap();

    fs::remove_file(&path).unwrap();
    let error = first_error(&dataset);
    assert!(matches!(error.problem(), Problem::NotFound), "{error}");
    assert_eq!(error.location().row_group, Some(0));
    assert_eq!(error.location().file.as_deref(), path.to_str());

    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = first_error(&dataset);
    assert!(
        matches!(error.problem(), Problem::Changed { .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("it has {} bytes", whole.len() / 2)),
        "{error}"
    );

    // The same size with another modification time.
    fs::write(&path, &whole).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(10);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let error = first_error(&dataset);
    assert!(
        matches!(error.problem(), Problem::Changed { .. }),
        "{error}"
    );
}

#[test]
fn without_permission_the_file_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (path, dataset) = one_file(directory.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if File::open(&path).is_ok() {
        // The user of this test may read all files (root), so the kernel does not deny access.
        let error = Error::from(Problem::from(std::io::Error::from(
            std::io::ErrorKind::PermissionDenied,
        )));
        assert!(
            error.to_string().starts_with("permission denied"),
            "{error}"
        );
        return;
    }
    let error = first_error(&dataset);
    assert!(
        matches!(error.problem(), Problem::PermissionDenied),
        "{error}"
    );
    assert_eq!(error.location().file.as_deref(), path.to_str());
}

/// Overwrites a column chunk of a row group, and keeps size and modification time.
fn damage(path: &Path, group: usize, column: &str) {
    let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let group = file.metadata().row_group(group);
    let chunk = group
        .columns()
        .iter()
        .find(|chunk| chunk.column_path().parts()[0] == column)
        .unwrap();
    let (start, length) = chunk.byte_range();
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut file = File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(start)).unwrap();
    file.write_all(&vec![0xff; length as usize]).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_damaged_page_is_named_by_file_row_group_and_column() {
    for column in ["id", "list", "bytes", "text"] {
        let directory = tempfile::tempdir().unwrap();
        let (path, dataset) = one_file(directory.path());
        damage(&path, 1, column);
        let error = first_error(&dataset);
        assert!(matches!(error.problem(), Problem::Corrupt(_)), "{error}");
        assert_eq!(error.location().file.as_deref(), path.to_str());
        assert_eq!(error.location().row_group, Some(1));
        assert_eq!(error.location().column.as_deref(), Some(column));
    }
}

/// A list of 2^60 doubles in a field that no version has, and 2^62 values in a data page with a dictionary.
#[test]
fn headers_that_promise_too_much_are_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let rows = BinaryArray::from_vec(vec![b"abcd"; 4]);
    let batch = RecordBatch::try_from_iter([("x", Arc::new(rows) as ArrayRef)]).unwrap();
    let doubles = |pages: &[u8]| {
        let content = 4 * (4 + b"abcd".len());
        let (header, content) = pages.split_at(pages.len() - content);
        let (_, header) = header.split_last().unwrap();
        let list = [
            0x09, 0x7e, 0xf7, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10,
        ];
        [header, &list, &[0], content].concat()
    };
    let values = |_: &[u8]| {
        let dictionary = dictionary_page(1, b"\x04\0\0\0abcd");
        // Groups of eight indices without bits.
        let indices = [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x3f];
        let data = data_page(1 << 62, 8, indices.len() as i64, &indices);
        [dictionary, data].concat()
    };
    for pages in [doubles as Pages, values] {
        let craft = Craft {
            pages: Some(pages),
            ..Craft::default()
        };
        craft.write(&path, &batch);
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let error = first_error(&dataset);
        assert_eq!(error.location().column.as_deref(), Some("x"));
        let text = error.to_string();
        assert!(
            text.ends_with("is damaged: a page header cannot be read"),
            "{text}"
        );
    }
}

#[test]
fn a_footer_that_claims_more_rows_than_its_pages_hold() {
    let directory = tempfile::tempdir().unwrap();
    let below = directory.path().join("day=3");
    fs::create_dir(&below).unwrap();
    let path = below.join("x.parquet");
    let rows = rows(0, 4);
    let craft = Craft {
        rows: Some(1 << 31),
        ..Craft::default()
    };
    let error = |column: &str| {
        let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
        let options = ReaderOptions {
            columns: Some(vec![column.to_owned()]),
            ..ReaderOptions::default()
        };
        let error = reader(&dataset, options).next_batch(1).unwrap_err();
        assert!(matches!(error.problem(), Problem::Corrupt(_)), "{error}");
        assert_eq!(error.location().file.as_deref(), path.to_str());
        assert_eq!(error.location().row_group, Some(0));
        (error.location().column.clone(), error.problem().to_string())
    };
    craft.write(&path, &rows);
    for column in ["id", "bytes", "text", "list", "day"] {
        let (name, why) = error(column);
        assert_eq!(name, (column != "day").then(|| column.to_owned()));
        let values = if column == "list" { 4 * WIDTH } else { 4 };
        let known = format!("is damaged: it has {values} values, the row group 2147483648 rows");
        // Without a column of the file, its first one stands for the rows.
        assert_eq!(why, known);
    }
    let craft = Craft {
        column: Some(|column| column.set_num_values(1 << 31)),
        ..craft
    };
    craft.write(&path, &rows);
    for column in ["id", "bytes", "text", "list"] {
        let (name, why) = error(column);
        assert_eq!(name.as_deref(), Some(column));
        let values = if column == "list" { 4 * WIDTH } else { 4 };
        let known = format!("its pages hold {values} values, the footer says 2147483648 rows");
        assert!(why.ends_with(&known), "{why}");
    }
}

#[test]
fn a_chunk_outside_of_its_file_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let changes: [Change; 4] = [
        |column| column.set_data_page_offset(-1),
        |column| column.set_total_compressed_size(-1),
        |column| column.set_data_page_offset(i64::MAX),
        |column| column.set_total_compressed_size(1 << 40),
    ];
    for change in changes {
        let craft = Craft {
            column: Some(change),
            ..Craft::default()
        };
        craft.write(&path, &rows(0, 4));
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let text = first_error(&dataset).to_string();
        assert!(
            text.ends_with("column id: is damaged: its footer places it outside of the file"),
            "{text}"
        );
    }
}

#[test]
fn a_codec_that_is_not_built_in_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    let changes: [(Change, &str); 1] = [(|column| column.set_compression(Compression::LZO), "lzo")];
    for (change, codec) in changes {
        let craft = Craft {
            column: Some(change),
            ..Craft::default()
        };
        craft.write(&path, &rows(0, 4));
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let error = first_error(&dataset);
        assert_eq!(error.location().column.as_deref(), Some("id"));
        assert_eq!(
            error.problem().to_string(),
            format!(
                "is compressed by {codec}, which this build does not read; it reads none, snappy, gzip, lz4, zstd and brotli"
            )
        );
    }
}

/// Pages of brotli that decompress to more than their headers say: numbers, which Arrow's reader decodes, and lists.
#[test]
fn a_page_of_brotli_has_the_size_that_its_header_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    // The first page of each chunk says half of its size: the second field of its header.
    let craft = Craft {
        written: Some(Compression::BROTLI(BrotliLevel::default())),
        pages: Some(|pages| {
            let mut pages = pages.to_vec();
            assert_eq!((pages[0], pages[2]), (0x15, 0x15));
            // A number of one byte or of two, the lower one first.
            let (low, has_high) = (pages[3], pages[3] >= 0x80);
            let high = u16::from(pages[4]) * u16::from(has_high);
            let half = (u16::from(low & 0x7f) | high << 7) / 4 * 2;
            pages[3] = (half & 0x7f) as u8 | (low & 0x80);
            if has_high {
                pages[4] = (half >> 7) as u8;
            }
            pages
        }),
        ..Craft::default()
    };
    craft.write(&path, &rows(0, 1));
    let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
    for column in dataset.schema().unwrap().fields() {
        let options = ReaderOptions {
            columns: Some(vec![column.name().clone()]),
            ..ReaderOptions::default()
        };
        let mut reader = reader(&dataset, options);
        let error = reader.next_batch(10).unwrap_err().to_string();
        assert!(
            error.ends_with("a page has not the length that its header says"),
            "{column}: {error}"
        );
    }
}

/// The footer as a whole, or one of the columns.
#[test]
fn encrypted_files_and_columns_are_named() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let error = Dataset::open_local([fixtures.join("encrypted.parquet")]).unwrap_err();
    assert!(matches!(error.problem(), Problem::Encrypted), "{error}");

    let dataset = Dataset::open_local([fixtures.join("encrypted-column.parquet")]).unwrap();
    let dataset = Arc::new(dataset);
    let error = first_error(&dataset);
    assert!(matches!(error.problem(), Problem::Encrypted), "{error}");
    assert_eq!(error.location().column.as_deref(), Some("secret"));
    let options = ReaderOptions {
        columns: Some(vec!["id".to_owned()]),
        shuffle: false,
        ..ReaderOptions::default()
    };
    let batches = drain(&mut reader(&dataset, options), 10);
    assert_eq!(
        batches.iter().flat_map(ids).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

/// Footers of other readers' files may claim any size: the pages have the rows.
#[test]
fn a_size_that_only_the_footer_has_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    for written in [
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let craft = Craft {
            written: Some(written),
            column: Some(|column| column.set_total_uncompressed_size(1 << 62)),
            ..Craft::default()
        };
        craft.write(&path, &rows(0, 4));
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let batches = drain(&mut reader(&dataset, ReaderOptions::default()), 10);
        assert_eq!(batches.iter().map(|batch| batch.rows()).sum::<usize>(), 4);
    }
}

#[test]
fn after_an_error_no_row_is_lost_and_asking_again_tries_again() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let path = directory.path().join("c.parquet");
    let whole = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    fs::remove_file(&path).unwrap();
    let mut reader = reader(
        &dataset,
        ReaderOptions {
            shuffle_rows: 300,
            ..ReaderOptions::default()
        },
    );
    let mut seen = Vec::new();
    let mut errors = 0;
    loop {
        let left = reader.rows_left();
        match reader.next_batch(64) {
            Ok(Some(batch)) => seen.extend(ids(&batch)),
            Ok(None) => break,
            Err(error) => {
                assert!(matches!(error.problem(), Problem::NotFound), "{error}");
                assert_eq!(reader.rows_left(), left);
                errors += 1;
                if errors == 3 {
                    fs::write(&path, &whole).unwrap();
                    File::options()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .set_modified(modified)
                        .unwrap();
                }
            }
        }
    }
    assert!(errors >= 3);
    seen.sort_unstable();
    assert_eq!(seen, (0..1501).collect::<Vec<_>>());
}

#[test]
fn what_is_skipped_is_counted_and_processed() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    damage(&directory.path().join("a.parquet"), 2, "list");
    fs::remove_file(directory.path().join("c.parquet")).unwrap();
    let options = ReaderOptions {
        on_error: OnError::Skip,
        shuffle_rows: 300,
        ..ReaderOptions::default()
    };
    let mut reader = reader(&dataset, options);
    let batches = drain(&mut reader, 64);
    let seen: usize = batches.iter().map(|batch| batch.rows()).sum();
    let processed: u64 = batches.iter().map(|batch| batch.rows_processed()).sum();
    assert_eq!((seen, processed), (1501 - 128 - 500, 1501));
    let skipped = reader.skipped();
    assert_eq!((skipped.pieces, skipped.rows), (5, 628));
    assert!(
        skipped
            .last
            .as_ref()
            .unwrap()
            .to_string()
            .contains("c.parquet")
    );
    assert!(reader.progress().iter().all(|cursor| cursor.is_done()));
}

#[test]
fn files_that_differ_in_a_column_are_named_if_it_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        write(&directory.path().join(name), &batch, 100);
    };
    let id = || ("id", Arc::new(Int64Array::from(vec![1])) as ArrayRef);
    file(
        "a.parquet",
        vec![
            id(),
            ("x", Arc::new(Float32Array::from(vec![1.0]))),
            ("y", Arc::new(Int32Array::from(vec![1]))),
        ],
    );
    file(
        "b.parquet",
        vec![("x", Arc::new(Int32Array::from(vec![1]))), id()],
    );
    let dataset = Arc::new(Dataset::open_local([directory.path()]).unwrap());
    let open = |columns: &[&str]| {
        let columns = Some(columns.iter().map(ToString::to_string).collect());
        Reader::new(
            dataset.clone(),
            ReaderOptions {
                columns,
                ..ReaderOptions::default()
            },
        )
    };

    let error = open(&["x"]).unwrap_err().to_string();
    assert!(
        error.contains("b.parquet: column x: is of type Int32, but Float32 in "),
        "{error}"
    );
    let error = open(&["id", "y"]).unwrap_err().to_string();
    assert!(
        error.contains("b.parquet: column y: is missing here"),
        "{error}"
    );
    let error = open(&["id", "z"]).unwrap_err().to_string();
    assert_eq!(error, "column z: no such column; the columns are id, x, y");

    // The matching column has another index in each file.
    let mut reader = open(&["id"]).unwrap();
    reader.assign(0, all(&dataset)).unwrap();
    assert_eq!(
        drain(&mut reader, 10)
            .iter()
            .flat_map(ids)
            .collect::<Vec<_>>(),
        [1, 1]
    );
}

#[test]
fn pieces_of_another_data_set_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_, dataset) = one_file(directory.path());
    let mut reader = reader(&dataset, ReaderOptions::default());
    for (group, lo, hi, why) in [
        (3, 0, 1, "the data set has 3 row groups"),
        (0, 0, 101, "the row group has 100 rows"),
        (0, 9, 3, "it ends before it begins"),
    ] {
        let error = reader.assign(0, [Piece { group, lo, hi }]).unwrap_err();
        assert!(error.to_string().ends_with(why), "{error}");
    }
    assert_eq!(reader.rows_left(), 300);
}
