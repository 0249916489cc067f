//! Which columns are decoded by their pages, and what that costs. The values are the same in any case.

use std::{fs::File, path::Path};

use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};

use super::*;

fn fixture(name: &str) -> Dataset {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    Dataset::open_local([fixtures.join(format!("{name}.parquet"))]).unwrap()
}

/// The chosen path only affects the cost, so it is tested here.
#[test]
fn columns_of_other_writers_are_decoded_by_their_pages() {
    for name in ["plain-v1", "dictionary-v1", "dictionary-v2", "checksums-v1"] {
        let name = format!("pyarrow-{name}");
        let dataset = fixture(&name);
        let selection = Selection::new(&dataset, None).unwrap();
        for group in 0..dataset.groups().len() as u32 {
            let file = dataset.file_of(group);
            let open = dataset.storage().open(&file.info).unwrap().unwrap();
            let columns = selection.columns(0);
            let ranges = chunks(&file.metadata, group as usize, &columns);
            let bytes = GroupBytes::read(dataset.storage(), &file.info, ranges).unwrap();
            for (column, field) in selection.schema.fields().iter().enumerate() {
                let column = GroupColumn {
                    metadata: &file.metadata,
                    group: group as usize,
                    column,
                    field,
                };
                let by_pages = column.takes_page_path(&bytes, &open);
                let covered = ["list", "few", "fixed", "bytes", "text"];
                let covered = covered.contains(&field.name().as_str());
                assert_eq!(
                    by_pages,
                    covered,
                    "{name}, row group {group}, {}",
                    field.name()
                );
            }
        }
    }
}

/// Byte strings of 100 bytes and, where `ragged` says so, of 101.
fn write_groups(path: &Path, compression: Compression, ragged: &[bool]) {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .build();
    let schema = Arc::new(arrow_schema::Schema::new(vec![arrow_schema::Field::new(
        "x",
        DataType::Binary,
        true,
    )]));
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).unwrap();
    for (group, ragged) in ragged.iter().enumerate() {
        let row = |row: usize| vec![group as u8; 100 + usize::from(*ragged && row == 1)];
        let rows: ArrayRef = Arc::new(BinaryArray::from_iter_values((0..2000).map(row)));
        let batch = RecordBatch::try_from_iter_with_nullable([("x", rows, true)]).unwrap();
        writer.write(&batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

/// Row groups of tensors and of other rows in turn: each byte is read once, and decompressed once.
#[test]
fn bytes_are_read_and_decompressed_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED] {
        let ragged = [false, true, true, false];
        write_groups(&path, compression, &ragged);
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let decoder = Decoder::new(dataset.clone(), &ReaderOptions::default()).unwrap();
        for (group, is_ragged) in ragged.into_iter().enumerate() {
            let before = (decoder.bytes_read(), decoder.bytes_decompressed());
            let decoded = decoder.decode(group as u32).unwrap();
            let size = decoded.columns[0].width(&DataType::Binary);
            assert_eq!(size, (!is_ragged).then_some(100));
            assert_eq!(decoder.paths.get("x"), Some(super::Path::Pages));
            let chunk = dataset
                .file_of(0)
                .metadata
                .metadata()
                .row_group(group)
                .column(0);
            let read = decoder.bytes_read() - before.0;
            assert_eq!(read, chunk.byte_range().1);
            let decompressed = decoder.bytes_decompressed() - before.1;
            match compression {
                Compression::UNCOMPRESSED => assert_eq!(decompressed, 0),
                _ => {
                    let values = 2000 * (100 + 4);
                    assert!(
                        (values..values + 100).contains(&decompressed),
                        "{decompressed}"
                    );
                }
            }
        }
    }
}

/// Arrow's reader gets a column from the first row group on that it has to decode, and what was read for that is counted.
#[test]
fn a_column_that_is_refused_goes_to_arrow() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    write_groups(&path, Compression::LZ4_RAW, &[false, true]);
    let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
    let decoder = Decoder::new(dataset.clone(), &ReaderOptions::default()).unwrap();
    let decoded = decoder.decode(0).unwrap();
    assert_eq!(decoded.columns[0].width(&DataType::Binary), Some(100));
    assert_eq!(decoder.paths.get("x"), None, "the codec says so each time");
    assert!(decoder.bytes_decompressed() > 2000 * 104);
}
