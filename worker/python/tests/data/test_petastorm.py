"""A data set of Petastorm, from the fixture in this directory. tests/petastorm writes one first."""

from __future__ import annotations

import importlib.util
import os
import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticrun.data import (
    IntersectIndexSelector,
    ParquetDataset,
    SingleIndexSelector,
    UnionIndexSelector,
    make_batch_reader,
    make_reader,
)
from elasticrun.data.petastorm import Field, MetadataError, decode, read_indexes, read_schema
from elasticrun.errors import DataError

HERE = Path(__file__).parent / "petastorm"
_spec = importlib.util.spec_from_file_location("kinds", HERE / "kinds.py")
kinds = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kinds)

ROWS, SIZE = 12, 6
SET = str(HERE / "set")
JPEG = {"photo", "shade"}


def same(name, ours, wanted):
    """Whether two values are; of JPEG, in the mean of their pixels, with what is lost as it is written."""
    if wanted is None:
        return ours is None
    if isinstance(wanted, Decimal):
        return Decimal(ours) == wanted
    if isinstance(wanted, str):
        return ours == wanted
    ours, wanted = np.asarray(ours), np.asarray(wanted)
    if name in JPEG:
        return ours.shape == wanted.shape and np.abs(ours.astype(int) - wanted.astype(int)).mean() <= 8
    return ours.shape == wanted.shape and np.array_equal(ours, wanted)


def test_each_value_is_what_was_written():
    seen = set()
    with make_reader(f"file://{SET}") as reader:
        for row in reader:
            wanted = kinds.row(int(row.id), SIZE)
            assert set(row._fields) == set(wanted)
            for name, value in wanted.items():
                assert same(name, getattr(row, name), value), (name, row.id)
            seen.add(int(row.id))
    assert seen == set(range(ROWS))


def test_types_are_those_of_the_schema():
    with make_reader(SET, shuffle_row_groups=False, shuffle_rows=False) as reader:
        row = next(row for row in reader if row.id == 2)
    assert isinstance(row.small, np.uint8) and isinstance(row.half, np.float32) and isinstance(row.maybe, np.int32)
    assert row.matrix.dtype == np.float32 and row.deep.dtype == np.uint16 and row.rgb.dtype == np.uint8
    assert row.day == np.datetime64("2026-01-03") and row.price == "0.2500" and row.flag in (True, False)


def test_the_schema_is_read_as_it_is_noted():
    fields = {field.name: field for field in read_schema([SET])}
    assert [fields[name].codec.name for name in ("id", "matrix", "packed")] == [
        "ScalarCodec",
        "NdarrayCodec",
        "CompressedNdarrayCodec",
    ]
    assert (fields["rgb"].codec.image, fields["photo"].codec.image) == ("png", "jpeg")
    assert (fields["matrix"].dtype, fields["matrix"].shape) == ("float32", (3, 4))
    assert fields["maybe"].nullable and not fields["id"].nullable
    assert (fields["price"].dtype, fields["packed"].shape) == ("Decimal", (2, None))


def test_a_data_set_of_a_job_decodes_whole_batches():
    data = ParquetDataset(
        SET, batch_size=4, codecs="petastorm", shuffle=False, columns=["id", "matrix", "rgb", "ragged", "part"]
    )
    data._enter_shard(0, 1)
    for batch in data:
        assert batch["matrix"].shape == (batch.rows, 3, 4)
        assert batch["rgb"].shape == (batch.rows, SIZE, SIZE, 3)
        for place, number in enumerate(batch["id"]):
            wanted = kinds.row(int(number), SIZE)
            assert all(same(name, batch[name][place], wanted[name]) for name in batch), number
        assert batch.torch()["matrix"].shape == (batch.rows, 3, 4)


def test_a_batch_without_rows_has_the_shapes_of_the_schema():
    columns = ["id", "matrix", "packed"]
    data = ParquetDataset(SET, batch_size=4, codecs="petastorm", columns=columns, where=[("id", "<", 0)])
    data._enter_shard(0, 1)
    batches = list(data)
    assert batches and not any(batch.rows for batch in batches)
    for batch in batches:
        assert (batch["matrix"].shape, batch["matrix"].dtype) == ((0, 3, 4), np.float32)
        assert batch["id"].shape == (0,)
        # Two rows of any length are an array of objects in any batch.
        assert batch["packed"].dtype == object
        assert "matrix" in batch.torch()


def test_arrays_of_one_shape_are_a_view_of_the_batch():
    data = ParquetDataset(SET, batch_size=4, codecs="petastorm", columns=["matrix"])
    data._enter_shard(0, 1)
    batch = next(iter(data))
    assert np.shares_memory(batch["matrix"], batch.stored("matrix"))


def test_batches_of_make_batch_reader_are_as_stored():
    with make_batch_reader(SET, schema_fields=["matrix"]) as reader:
        assert bytes(next(reader).matrix[0][:6]) == b"\x93NUMPY"


@pytest.mark.parametrize(
    ("selector", "rule"),
    [
        (SingleIndexSelector("by id", [3]), lambda number: number % 2 == 1),
        (UnionIndexSelector([SingleIndexSelector("by id", [3]), SingleIndexSelector("by id", [4])]), lambda _: True),
        (IntersectIndexSelector([SingleIndexSelector("by kind", ["kind 1"]), SingleIndexSelector("by id", [4])]),
         lambda number: number % 2 == 0),
        (SingleIndexSelector("by id", [99]), lambda _: False),
        (SingleIndexSelector("has label", [None]), lambda _: True),
    ],
)  # fmt: skip
def test_selectors_select_by_the_indexes_of_the_data_set(selector, rule):
    # One row group for each of the two partitions: the even and the odd numbers.
    with make_reader(SET, rowgroup_selector=selector) as reader:
        assert {int(row.id) for row in reader} == {number for number in range(ROWS) if rule(number)}


def test_an_index_that_is_not_there_is_named():
    with pytest.raises(DataError, match="no index 'by name'.*there are: by id, by kind, has label"):
        make_reader(SET, rowgroup_selector=SingleIndexSelector("by name", [1]))
    assert read_indexes([SET])["by kind"].column == "kind"


def test_stored_lists_of_any_length_are_arrays_of_the_type_of_the_field(tmp_path):
    values = {"numbers": [[1, 2], [], [3]], "texts": [["a"], ["b", "c"], []], "even": [[1, 2], [3, 4], [5, 6]]}
    kinds_of = {"numbers": pa.list_(pa.int32()), "texts": pa.list_(pa.string()), "even": pa.list_(pa.int32())}
    columns = {name: pa.array(column, kinds_of[name]) for name, column in values.items()}
    columns["numbers"] = pa.array([[1, 2], None, [3]], kinds_of["numbers"])
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    data = ParquetDataset(tmp_path, batch_size=3, shuffle=False)
    data._enter_shard(0, 1)
    batch = next(iter(data))

    def decoded(name, dtype):
        return decode(Field(name, dtype, (None,), None, True), batch, data.schema[name])

    numbers, texts = decoded("numbers", "int16"), decoded("texts", "str_")
    assert [None if value is None else value.tolist() for value in numbers] == [[1, 2], None, [3]]
    assert numbers[0].dtype == np.int16 and isinstance(texts[0], np.ndarray)
    assert [value.tolist() for value in texts] == values["texts"]
    assert decoded("even", "int32").shape == (3, 2)


def noted(directory: Path, pickled: bytes) -> str:
    """A data set with that pickle for a schema."""
    pq.write_table(pa.table({"x": [1]}), directory / "x.parquet")
    schema = pa.schema([("x", pa.int64())], metadata={b"dataset-toolkit.unischema.v1": pickled})
    pq.write_metadata(schema, directory / "_common_metadata")
    return str(directory)


class Hostile:
    """As it is unpickled, it makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_is_read_and_never_run(tmp_path, protocol):
    path = str(tmp_path / "made by a pickle")
    with pytest.raises(MetadataError, match=r"the pickle names posix\.mkdir, which is none of Petastorm's"):
        make_reader(noted(tmp_path, pickle.dumps(Hostile(path), protocol)))
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        (b"", "the pickle cannot be read"),
        (pickle.dumps({"a": 1}), "the schema is not as Petastorm writes it"),
        (pickle.dumps(7), "the schema is not as Petastorm writes it"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "names builtins.eval"),
        (b"cnumpy\nload.it\n.", "names numpy.load.it"),
        (b"P0\n.", "refers to '0' outside of itself"),
    ],
)
def test_what_is_no_schema_is_said(tmp_path, pickled, said):
    with pytest.raises(MetadataError, match=said):
        make_reader(noted(tmp_path, pickled))


def test_codecs_need_a_schema(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no schema of Petastorm is noted in _common_metadata"):
        ParquetDataset(tmp_path, batch_size=1, codecs="petastorm")
    with pytest.raises(ValueError, match="codecs='avro': must be 'petastorm' or None"):
        ParquetDataset(tmp_path, batch_size=1, codecs="avro")


def test_a_value_that_its_codec_did_not_write_is_named(tmp_path):
    (part,) = sorted(Path(SET, "part=p0").iterdir())
    table = pq.read_table(part, partitioning=None)
    place = table.schema.get_field_index("rgb")
    table = table.set_column(place, "rgb", pa.array([b"GIF89a"] * table.num_rows))
    pq.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "_common_metadata").write_bytes(Path(SET, "_common_metadata").read_bytes())
    data = ParquetDataset(tmp_path, batch_size=4, codecs="petastorm", columns=["rgb"])
    data._enter_shard(0, 1)
    with pytest.raises(DataError, match="column rgb: .*neither PNG nor JPEG"):
        next(iter(data))["rgb"]
