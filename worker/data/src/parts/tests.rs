use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int16Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, StringArray, StructArray,
    types::{Int32Type, Int64Type},
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::Field;
use proptest::prelude::*;

use super::*;

fn parts(array: impl Array + 'static) -> Parts {
    Parts::of(&(Arc::new(array) as ArrayRef)).expect("a form")
}

fn integers(parts: &Parts) -> Vec<i64> {
    let Form::Numbers(numbers) = &parts.form else {
        panic!("{parts:?}");
    };
    numbers.values.typed_data::<i64>().to_vec()
}

/// The rows of lists of integers.
fn rows(parts: &Parts) -> Vec<Option<Vec<i64>>> {
    let Form::List { offsets, child } = &parts.form else {
        panic!("{parts:?}");
    };
    let values = integers(child);
    let row = |row: usize| {
        let values = &values[offsets[row] as usize..offsets[row + 1] as usize];
        assert!(parts.is_valid(row) || values.is_empty());
        parts.is_valid(row).then(|| values.to_vec())
    };
    (0..parts.rows).map(row).collect()
}

#[test]
fn values_under_a_null_row_are_no_values() {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..6));
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 4, 6]));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let array = ListArray::new(field, offsets, values, Some(nulls));
    let expected = [Some(vec![0, 1]), None, Some(vec![4, 5])];
    assert_eq!(rows(&parts(array.clone())), expected);
    assert_eq!(rows(&parts(array.slice(1, 2))), expected[1..]);
}

#[test]
fn a_slice_begins_at_its_first_row() {
    let text = StringArray::from(vec!["zero", "one", "two", "three"]).slice(1, 2);
    let Form::Bytes { offsets, bytes, .. } = parts(text).form else {
        panic!("text");
    };
    assert_eq!((offsets, &*bytes), (vec![0, 3, 6], &b"onetwo"[..]));
    let numbers = Int64Array::from_iter_values(0..9).slice(3, 4);
    assert_eq!(integers(&parts(numbers)), [3, 4, 5, 6]);
    let flags = BooleanArray::from(vec![true, false, true]).slice(1, 2);
    let Form::Numbers(flags) = parts(flags).form else {
        panic!("flags");
    };
    assert_eq!((flags.kind, &*flags.values), ("|b1", &[0, 1][..]));
    let pairs = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..4).map(|row| Some([Some(row), Some(row)])),
        2,
    );
    let Form::Fixed { width: 2, child } = parts(pairs.slice(2, 1)).form else {
        panic!("pairs");
    };
    assert_eq!(integers(&child), [2, 2]);
}

#[test]
fn a_dictionary_is_its_values() {
    let words: DictionaryArray<Int32Type> = [Some("b"), None, Some("a")].into_iter().collect();
    let found = parts(words);
    assert!(found.is_valid(0) && !found.is_valid(1));
    assert!(matches!(found.form, Form::Bytes { is_text: true, .. }));
}

#[test]
fn a_type_without_a_form_has_none_within_others_either() {
    let spans: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![None]));
    assert!(Parts::of(&spans).is_none());
    let field = Arc::new(Field::new("span", spans.data_type().clone(), true));
    let within: ArrayRef = Arc::new(StructArray::from(vec![(field, spans)]));
    assert!(Parts::of(&within).is_none());
}

fn pad(value: &[u8]) -> Pad<'_> {
    Pad {
        value,
        length: None,
        multiple_of: 1,
        truncates: false,
        is_left: false,
    }
}

#[test]
fn what_cannot_be_padded_is_refused() {
    let lists = parts(ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(1); 3]),
        Some(vec![Some(1); 5]),
    ]));
    let value = 0i32.to_le_bytes();
    let short = Pad {
        length: Some(4),
        ..pad(&value)
    };
    let error = lists.padded(&short).expect_err("five values");
    let expected = PadError::TooLong {
        row: 1,
        values: 5,
        length: 4,
    };
    assert_eq!(error, expected);
    let huge = Pad {
        length: Some(usize::MAX / 8),
        ..pad(&value)
    };
    assert_eq!(lists.padded(&huge).err(), Some(PadError::TooLarge));
    let numbers = parts(Int16Array::from(vec![1]));
    assert_eq!(
        numbers.padded(&pad(&[0, 0])).err(),
        Some(PadError::NoNumbers)
    );
}

#[test]
fn no_rows_are_padded_to_none() {
    let none = parts(Int32Array::from(Vec::<i32>::new()));
    assert_eq!(none.rows, 0);
    let lists = ListArray::from_iter_primitive::<Int32Type, Vec<Option<i32>>, _>([]);
    let value = 0i32.to_le_bytes();
    let padded = parts(lists).padded(&pad(&value)).expect("no rows");
    assert_eq!((padded.length, padded.numbers.len()), (0, 0));
}

proptest! {
    #[test]
    fn padded_rows_have_their_values_and_padding(
        rows in prop::collection::vec(
            prop::option::weighted(0.8, prop::collection::vec(prop::option::weighted(0.8, 0i64..99), 0..6)),
            0..8,
        ),
        length in prop::option::of(0usize..8),
        multiple_of in 1usize..4,
        truncates: bool,
        is_left: bool,
        first in 0usize..3,
    ) {
        let array = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone());
        let first = first.min(rows.len());
        let rows = &rows[first..];
        let found = parts(array.slice(first, rows.len()));
        let value = (-1i64).to_le_bytes();
        let padded = found.padded(&Pad { value: &value, length, multiple_of, truncates, is_left });
        let longest = rows.iter().flatten().map(Vec::len).max().unwrap_or(0);
        let room = length.unwrap_or(longest).next_multiple_of(multiple_of);
        if longest > room && !truncates {
            let is_too_long = matches!(padded, Err(PadError::TooLong { .. }));
            prop_assert!(is_too_long);
            return Ok(());
        }
        let padded = padded.expect("there is room");
        prop_assert_eq!(padded.length, room);
        let mut expected = Vec::new();
        for row in rows {
            let mut row = row.clone().unwrap_or_default();
            row.truncate(room);
            let blank = vec![None; room - row.len()];
            let parts = if is_left { [blank, row] } else { [row, blank] };
            expected.extend(parts.concat());
        }
        let values: Vec<i64> = expected.iter().map(|value| value.unwrap_or(-1)).collect();
        let mask: Vec<u8> = expected.iter().map(|value| u8::from(value.is_some())).collect();
        prop_assert_eq!(padded.numbers.values.typed_data::<i64>(), &values);
        prop_assert_eq!(&*padded.mask, &mask);
    }
}
