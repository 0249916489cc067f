//! Random columns of the parquet crate: the page path and Arrow's reader give the same rows, whole, in batches, and by row.

use std::{fs, ops::RangeInclusive, sync::Arc};

use arrow_array::{
    ArrayRef, RecordBatch, UInt32Array,
    builder::{GenericBinaryBuilder, GenericListBuilder, GenericStringBuilder, PrimitiveBuilder},
    types::{
        ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type,
    },
};
use arrow_schema::{Field, Schema};
use arrow_select::take::take;
use bytes::Bytes;
use elasticrun_core::random::Random;
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ArrowReaderMetadata},
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::{WriterProperties, WriterVersion},
};
use proptest::prelude::*;

use crate::{
    Dataset,
    buffers::BufferPool,
    column::{DecodedColumn, Pick, gather},
    decode::{
        Decoder,
        bytes::GroupBytes,
        column::{ByPages, GroupColumn},
    },
    options::ReaderOptions,
};

/// A random number of a range.
fn draw(random: &mut Random, range: RangeInclusive<u64>) -> u64 {
    range.start() + random.next_u64() % (range.end() - range.start() + 1)
}

fn chance(random: &mut Random, one_in: u64) -> bool {
    one_in > 0 && random.next_u64().is_multiple_of(one_in)
}

/// How often rows and elements are missing, and how long rows are.
#[derive(Clone, Copy, Debug)]
struct Content {
    rows: usize,
    max_length: u64,
    null_rows: u64,
    null_elements: u64,
    /// Different values, for dictionaries.
    values: u64,
}

fn lists<T: ArrowPrimitiveType, O: arrow_array::OffsetSizeTrait>(
    random: &mut Random,
    content: Content,
    make: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    let element = Field::new("element", T::DATA_TYPE, content.null_elements > 0);
    let mut builder =
        GenericListBuilder::<O, _>::new(PrimitiveBuilder::<T>::new()).with_field(element);
    for _ in 0..content.rows {
        if chance(random, content.null_rows) {
            builder.append(false);
            continue;
        }
        let length = draw(random, 0..=content.max_length);
        for _ in 0..length {
            let value = make(draw(random, 0..=content.values));
            let is_null = chance(random, content.null_elements);
            builder.values().append_option((!is_null).then_some(value));
        }
        builder.append(true);
    }
    Arc::new(builder.finish())
}

/// A text that shares its beginning with others. Some letters have several bytes.
fn text(random: &mut Random, content: Content) -> Option<String> {
    if chance(random, content.null_rows) {
        return None;
    }
    let mut of_value = Random::keyed(&[draw(random, 0..=content.values)]);
    let length = draw(&mut of_value, 0..=content.max_length) as usize;
    let letters = ["a", "b", "\u{e9}", "\u{20ac}", "\u{1f600}"];
    let last = letters[of_value.next_u64() as usize % letters.len()];
    Some("prefix-".repeat(length / 7) + last)
}

const KINDS: usize = 12;

fn column(kind: usize, random: &mut Random, content: Content) -> ArrayRef {
    match kind {
        0 => lists::<Int32Type, i32>(random, content, |value| value as i32 - 1000),
        1 => lists::<Int64Type, i32>(random, content, |value| (value << 40) as i64 - 7),
        2 => lists::<UInt32Type, i64>(random, content, |value| value as u32),
        3 => lists::<UInt64Type, i32>(random, content, |value| u64::MAX - value),
        4 => lists::<Float32Type, i32>(random, content, |value| value as f32 / 3.0),
        5 => lists::<Float64Type, i64>(random, content, |value| match value {
            0 => f64::NAN,
            value => value as f64 / 7.0,
        }),
        6 | 7 => {
            let mut builder = GenericStringBuilder::<i32>::new();
            (0..content.rows).for_each(|_| builder.append_option(text(random, content)));
            Arc::new(builder.finish())
        }
        8 => {
            let mut builder = GenericStringBuilder::<i64>::new();
            (0..content.rows).for_each(|_| builder.append_option(text(random, content)));
            Arc::new(builder.finish())
        }
        9 | 10 => {
            let mut builder = GenericBinaryBuilder::<i32>::new();
            (0..content.rows).for_each(|_| builder.append_option(text(random, content)));
            Arc::new(builder.finish())
        }
        _ => {
            let mut builder = GenericBinaryBuilder::<i64>::new();
            (0..content.rows).for_each(|_| builder.append_option(text(random, content)));
            Arc::new(builder.finish())
        }
    }
}

/// The encodings that a writer may use for values of a kind.
fn encodings(kind: usize) -> &'static [Encoding] {
    match kind {
        0..4 => &[
            Encoding::PLAIN,
            Encoding::DELTA_BINARY_PACKED,
            Encoding::BYTE_STREAM_SPLIT,
        ],
        4..6 => &[Encoding::PLAIN, Encoding::BYTE_STREAM_SPLIT],
        _ => &[
            Encoding::PLAIN,
            Encoding::DELTA_LENGTH_BYTE_ARRAY,
            Encoding::DELTA_BYTE_ARRAY,
        ],
    }
}

/// How a file is written.
#[derive(Clone, Debug)]
struct Writing {
    codec: usize,
    is_v2: bool,
    dictionary: bool,
    dictionary_bytes: usize,
    page_rows: usize,
    page_bytes: usize,
    batch: usize,
    encoding: usize,
}

impl Writing {
    fn properties(&self, kind: usize) -> WriterProperties {
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::ZSTD(ZstdLevel::default()),
            Compression::BROTLI(Default::default()),
        ];
        let encodings = encodings(kind);
        let version = match self.is_v2 {
            true => WriterVersion::PARQUET_2_0,
            false => WriterVersion::PARQUET_1_0,
        };
        WriterProperties::builder()
            .set_compression(codecs[self.codec % codecs.len()])
            .set_writer_version(version)
            .set_dictionary_enabled(self.dictionary)
            .set_encoding(encodings[self.encoding % encodings.len()])
            .set_dictionary_page_size_limit(self.dictionary_bytes)
            .set_data_page_row_count_limit(self.page_rows)
            .set_data_page_size_limit(self.page_bytes)
            .set_write_batch_size(self.batch)
            .build()
    }
}

fn writings() -> impl Strategy<Value = Writing> {
    let sizes = (
        prop_oneof![Just(50_usize), Just(1 << 20)],
        1..300_usize,
        prop_oneof![Just(100_usize), Just(5000)],
        1..200_usize,
    );
    (0..4_usize, any::<bool>(), any::<bool>(), sizes, 0..3_usize).prop_map(
        |(codec, is_v2, dictionary, (dictionary_bytes, page_rows, page_bytes, batch), encoding)| {
            Writing {
                codec,
                is_v2,
                dictionary,
                dictionary_bytes,
                page_rows,
                page_bytes,
                batch,
                encoding,
            }
        },
    )
}

fn contents(rows: RangeInclusive<usize>) -> impl Strategy<Value = Content> {
    let often = || prop_oneof![Just(0_u64), 2..20_u64];
    let values = prop_oneof![0..20_u64, Just(1_000_000)];
    let lengths = prop_oneof![0..4_u64, 0..80_u64];
    (rows, lengths, often(), often(), values).prop_map(
        |(rows, max_length, null_rows, null_elements, values)| Content {
            rows,
            max_length,
            null_rows,
            null_elements,
            values,
        },
    )
}

fn written(array: &ArrayRef, is_nullable: bool, properties: WriterProperties) -> Bytes {
    let field = Field::new("x", array.data_type().clone(), is_nullable);
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(schema.clone(), vec![array.clone()]).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, schema, Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file.into()
}

/// Reads a column of one row group by its pages, and compares it with what was written and with Arrow's reader.
fn check(array: &ArrayRef, file: &Bytes, random: &mut Random) {
    let metadata = ArrowReaderMetadata::load(file, Default::default()).unwrap();
    let field = metadata.schema().field(0).clone();
    let column = GroupColumn {
        metadata: &metadata,
        group: 0,
        column: 0,
        field: &field,
    };
    let bytes = GroupBytes::from_memory(file.clone());
    let buffers = BufferPool::default();
    let (by_pages, cost) = column.by_pages(&bytes, &buffers).unwrap();
    let ByPages::Decoded(decoded) = by_pages else {
        panic!("{by_pages:?}");
    };
    let (_, of_arrow) = column.needed(&bytes).unwrap();
    assert_eq!(cost, of_arrow, "each page is decompressed once");
    let expected = column.with_arrow(&bytes, None).unwrap();
    let found = decoded.array(field.data_type());
    found.to_data().validate_full().unwrap();
    assert_eq!(found.to_data(), expected.to_data());
    assert_eq!(&**found, &**array);

    let picks: Vec<Pick> = (0..draw(random, 0..=200))
        .map(|_| Pick {
            source: 0,
            row: draw(random, 0..=array.len() as u64 - 1) as u32,
        })
        .collect();
    let rows = UInt32Array::from_iter_values(picks.iter().map(|pick| pick.row));
    let of_arrow = DecodedColumn::from_array(expected);
    let batch = gather(&field, &[&decoded], &picks).unwrap();
    let other = gather(&field, &[&of_arrow], &picks).unwrap();
    batch.array.to_data().validate_full().unwrap();
    assert_eq!(batch.array.to_data(), other.array.to_data());
    assert_eq!(batch.width, other.width);
    assert_eq!(&batch.array, &take(array, &rows, None).unwrap());

    let mut path = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut path, file).unwrap();
    match column.decode_from_file(path.as_file(), &buffers).unwrap() {
        (ByPages::Decoded(decoded), cost) => {
            assert_eq!(&**decoded.array(field.data_type()), &**array);
            let (_, length) = metadata.metadata().row_group(0).column(0).byte_range();
            assert_eq!(cost.read, length, "each byte is read once");
        }
        (by_pages, _) => assert!(matches!(by_pages, ByPages::Unsupported), "{by_pages:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rows_are_those_that_were_written(
        kind in 0..KINDS,
        content in contents(1..=400),
        writing in writings(),
        is_nullable in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut random = Random::keyed(&[seed]);
        let array = column(kind, &mut random, content);
        let is_nullable = is_nullable || content.null_rows > 0;
        let file = written(&array, is_nullable, writing.properties(kind));
        check(&array, &file, &mut random);
    }

    /// Pages that hold some rows.
    #[test]
    fn some_rows_are_those_that_were_written(
        kind in 0..KINDS,
        content in contents(1500..=2000),
        writing in writings(),
        seed in any::<u64>(),
    ) {
        let content = Content { max_length: content.max_length.max(20), values: 1_000_000, ..content };
        let mut random = Random::keyed(&[seed]);
        let array = column(kind, &mut random, content);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.parquet");
        let writing = Writing { page_rows: writing.page_rows.min(100), ..writing };
        fs::write(&path, written(&array, true, writing.properties(kind))).unwrap();
        let dataset = Arc::new(Dataset::open_local([&path]).unwrap());
        let decoder = Decoder::new(dataset, &ReaderOptions::default()).unwrap();
        let mut rows: Vec<u32> = (0..draw(&mut random, 1..=8))
            .map(|_| draw(&mut random, 0..=array.len() as u64 - 1) as u32)
            .collect();
        rows.sort_unstable();
        rows.dedup();
        let (columns, held) = decoder.decode_rows(0, &rows).unwrap();
        let places = rows.iter().map(|row| held.as_ref().map_or(*row, |held| held.index_of(*row)));
        let found = take(columns[0].array(array.data_type()), &UInt32Array::from_iter_values(places), None);
        let expected = take(&array, &UInt32Array::from(rows), None);
        prop_assert_eq!(&found.unwrap(), &expected.unwrap());
        let is_known = decoder.paths.get("x");
        prop_assert_eq!(is_known, Some(crate::decode::Path::Pages));
    }
}

/// Row groups with nulls, without, and of rows of one size, in one batch.
#[test]
fn row_groups_of_different_forms_go_into_one_batch() {
    let mut random = Random::keyed(&[1]);
    let ragged = Content {
        rows: 100,
        max_length: 9,
        null_rows: 0,
        null_elements: 0,
        values: 50,
    };
    let contents = [
        ragged,
        Content {
            null_rows: 3,
            ..ragged
        },
        Content {
            null_elements: 3,
            ..ragged
        },
        Content {
            max_length: 0,
            ..ragged
        },
    ];
    for kind in 0..KINDS {
        for with_elements in [false, true] {
            let mut sources: Vec<ArrayRef> = Vec::new();
            for (number, content) in contents.iter().enumerate() {
                if number != 2 || with_elements {
                    sources.push(column(kind, &mut random, *content));
                }
            }
            // In which elements may be missing if they are.
            let data_type = sources[sources.len() - 2].data_type().clone();
            let field = Field::new("x", data_type, true);
            let decoded: Vec<DecodedColumn> = sources
                .iter()
                .cloned()
                .map(DecodedColumn::from_array)
                .collect();
            let picks: Vec<Pick> = (0..300)
                .map(|_| Pick {
                    source: draw(&mut random, 0..=sources.len() as u64 - 1) as u32,
                    row: draw(&mut random, 0..=99) as u32,
                })
                .collect();
            let batch = gather(&field, &decoded.iter().collect::<Vec<_>>(), &picks).unwrap();
            batch.array.to_data().validate_full().unwrap();
            assert_eq!(batch.array.data_type(), field.data_type());
            for (row, pick) in picks.iter().enumerate() {
                let source = &decoded[pick.source as usize];
                let expected = source.array(field.data_type()).slice(pick.row as usize, 1);
                assert_eq!(&batch.array.slice(row, 1), &expected);
            }
        }
    }
}
