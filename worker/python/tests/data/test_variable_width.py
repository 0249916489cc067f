"""Lists of numbers, strings and bytes of any length, as pyarrow writes them: the rows are those that pyarrow reads."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from elasticrun.data import ParquetDataset

ROWS = 3000
NUMBERS = [pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()]
TEXTS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
DELTAS = {
    "number": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "float": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "text": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
}


def lists(draw: random.Random, kind: pa.DataType, holes: bool) -> pa.Array:
    """Lists that may be empty. With holes, lists and elements are missing."""
    longest = draw.choice([3, 40])
    # What a float of 32 bits holds exactly.
    spread = draw.choice([5, 2**24 if pa.types.is_floating(kind) else 2**31 - 1])

    def element():
        return None if holes and draw.random() < 0.1 else draw.randrange(spread)

    rows = [
        None if holes and draw.random() < 0.1 else [element() for _ in range(draw.randrange(longest))]
        for _ in range(ROWS)
    ]
    of = pa.large_list if draw.random() < 0.3 else pa.list_
    return pa.array(rows, of(pa.field("element", kind, nullable=holes)))


def texts(draw: random.Random, kind: pa.DataType, holes: bool) -> pa.Array:
    words = ["", "w\u00f6rd", "\U0001f600", "common prefix ", *(f"{draw.random()}" for _ in range(50))]

    def row():
        return None if holes and draw.random() < 0.1 else "".join(draw.choices(words, k=draw.randrange(6)))

    rows = [row() for _ in range(ROWS)]
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.array([row if row is None or is_text else row.encode() for row in rows], kind)


def columns(draw: random.Random, holes: bool) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """A column of each type, with an encoding."""
    found, encodings = {}, {}
    for kind in NUMBERS:
        name = f"list_{kind}"
        found[name] = lists(draw, kind, holes)
        encodings[f"{name}.list.element"] = draw.choice(DELTAS["float" if pa.types.is_floating(kind) else "number"])
    for kind in TEXTS:
        found[str(kind)] = texts(draw, kind, holes)
        encodings[str(kind)] = draw.choice(DELTAS["text"])
    return found, encodings


def read(path, **options) -> pa.Table:
    data = ParquetDataset(path, **options)
    return pa.Table.from_batches([pa.record_batch(batch.arrow()) for batch in data])


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_those_that_pyarrow_reads(seed, tmp_path):
    draw = random.Random(seed)
    path = tmp_path / "x.parquet"
    found, encodings = columns(draw, holes=seed % 2 == 1)
    table = pa.table({"index": range(ROWS), **found})
    by_dictionary = draw.random() < 0.4
    pq.write_table(
        table,
        path,
        compression=draw.choice(["none", "snappy", "zstd", "brotli", "lz4", "gzip"]),
        data_page_version=draw.choice(["1.0", "2.0"]),
        row_group_size=draw.choice([700, ROWS]),
        data_page_size=draw.choice([300, 5000, 1 << 20]),
        write_batch_size=draw.choice([10, 1024]),
        dictionary_pagesize_limit=draw.choice([500, 1 << 20]),
        write_page_index=True,
        **({"use_dictionary": True} if by_dictionary else {"use_dictionary": False, "column_encoding": encodings}),
    )
    expected = pq.read_table(path)
    assert read(path, batch_size=draw.choice([1, 64, 999]), shuffle=False).equals(expected)
    for low, high in [(5, 9), (1200, 1333), (2990, ROWS)]:
        where = (pc.field("index") >= low) & (pc.field("index") < high)
        some = read(path, batch_size=32, shuffle=False, where=where)
        assert some.equals(expected.slice(low, high - low)), (low, high)
    shuffled = read(path, batch_size=64, seed=seed, shuffle_rows=500)
    order = np.argsort(shuffled["index"].to_numpy())
    assert shuffled.take(order).equals(expected)


def test_values_of_plain_pages_are_read_once(tmp_path):
    """Also of the first row groups, which show how a column is written."""
    draw = random.Random(0)
    path = tmp_path / "x.parquet"
    found, _ = columns(draw, holes=True)
    pq.write_table(pa.table(found), path, row_group_size=300, use_dictionary=False)
    data = ParquetDataset(path, batch_size=64, threads=2)
    for _ in data:
        pass
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    there = sum(group.column(leaf).total_compressed_size for group in groups for leaf in range(group.num_columns))
    assert data.bytes_read == there
