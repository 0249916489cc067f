//! Which columns take the fast path, and what that costs. The values are the same in any case.

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
fn tensors_of_other_writers_take_the_short_way() {
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
                let fast_path = column.takes_fast_path(&bytes, &open);
                let tensors = ["list", "few", "fixed", "bytes"].contains(&field.name().as_str());
                assert_eq!(
                    fast_path,
                    tensors,
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

#[test]
fn a_ragged_column_is_tried_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.parquet");
    for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED] {
        write_groups(&path, compression, &[false, true, true, false]);
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let decoder = Decoder::new(dataset.clone(), &ReaderOptions::default()).unwrap();
        for (group, (is_ragged, is_known)) in
            [(false, false), (true, true), (true, true), (false, true)]
                .into_iter()
                .enumerate()
        {
            let before = decoder.bytes_read();
            let decoded = decoder.decode(group as u32).unwrap();
            let size = decoded.columns[0].width(&DataType::Binary);
            assert_eq!(size, (!is_ragged).then_some(100));
            let shape = decoder.shapes.get("x");
            assert_eq!(shape == Some(Shape::Ragged), is_known);
            let chunk = dataset
                .file_of(0)
                .metadata
                .metadata()
                .row_group(group)
                .column(0);
            let read = decoder.bytes_read() - before;
            // A column that was a tensor is read by the fast path, which reads the only page of the row group before it finds
            // the second row.
            let is_twice = group == 1 && compression == Compression::SNAPPY;
            assert_eq!(read, chunk.byte_range().1 * (1 + u64::from(is_twice)));
        }
    }
}
