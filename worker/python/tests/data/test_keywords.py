"""The arguments of petastorm 0.13's readers: each is accepted, mapped, or refused with one line."""

from __future__ import annotations

import numpy as np
import pytest
from support import parquet

from elasticrun.data import TransformSpec, edit_field, make_batch_reader, make_reader

#: All arguments of make_reader of petastorm 0.13.1, with values that they may have there.
ARGUMENTS = {
    "schema_fields": ["index"],
    "reader_pool_type": "process",
    "workers_count": 3,
    "pyarrow_serialize": True,
    "results_queue_size": 7,
    "seed": 3,
    "shuffle_rows": True,
    "shuffle_row_groups": False,
    "shuffle_row_drop_partitions": 2,
    "predicate": None,
    "rowgroup_selector": None,
    "num_epochs": 2,
    "cur_shard": 0,
    "shard_count": 1,
    "shard_seed": 4,
    "cache_type": "local-disk",
    "cache_location": None,
    "cache_size_limit": 1 << 20,
    "cache_row_size_estimate": 100,
    "cache_extra_settings": {},
    "hdfs_driver": "libhdfs3",
    "transform_spec": None,
    "filters": [("index", "<", 100)],
    "storage_options": None,
    "zmq_copy_buffers": True,
    "filesystem": None,
    "convert_early_to_numpy": True,
}


@pytest.fixture
def path(tmp_path):
    return str(parquet.write(tmp_path / "set"))


def indexes(reader):
    with reader:
        return sorted(int(row.index) for row in reader)


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_all_arguments_are_known(path, tmp_path, make):
    options = {**ARGUMENTS, "cache_location": str(tmp_path / "cache")}
    if make is make_batch_reader:
        del options["pyarrow_serialize"]
    with make(path, **options) as reader:
        given = [row.index for row in reader]
    rows = np.concatenate(given) if make is make_batch_reader else given
    assert sorted(int(index) for index in rows) == sorted([*range(100)] * 2)
    assert list((tmp_path / "cache").glob("*.part"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"storage_options": {"key": "x"}},
            "storage_options is not supported: credentials and endpoints come from the",
        ),
        ({"filesystem": object()}, "filesystem is not supported: the reader opens paths, s3://, gs:// and az://"),
        ({"cache_type": "memory"}, "cache_type='memory': must be None, 'null' or 'local-disk'"),
        ({"cache_type": "local-disk"}, "cache_type='local-disk' needs cache_location"),
        ({"reader_pool_type": "fiber"}, "reader_pool_type='fiber': must be one of thread, process, dummy"),
        ({"schema_fields": ["nobody"]}, "no field matches 'nobody'; there are: index, x, name"),
    ],
)
def test_what_cannot_be_followed_is_said(path, options, said):
    with pytest.raises(ValueError, match=said):
        make_reader(path, **options)


def test_an_argument_that_nobody_knows_is_an_error(path):
    with pytest.raises(TypeError, match="colour is not known: docs/migrate-from-petastorm.md"):
        make_reader(path, colour=1)


def test_fields_by_pattern_and_by_object(path):
    class Field:
        name = "x"

    with make_batch_reader(path, schema_fields=["ind.*", Field()]) as reader:
        assert next(reader)._fields == ("index", "x")
    # A pattern must match a whole name.
    with pytest.raises(ValueError, match="no field matches 'ind'"):
        make_batch_reader(path, schema_fields=["ind"])


class in_set:
    """As Petastorm's predicate of that name."""

    def __init__(self, values, field):
        self._inclusion_values = set(values)
        self._predicate_field = field

    def get_fields(self):
        return {self._predicate_field}

    def do_include(self, row):
        return row[self._predicate_field] in self._inclusion_values


class in_lambda:
    def __init__(self, fields, function):
        self._fields, self._function = fields, function

    def get_fields(self):
        return set(self._fields)

    def do_include(self, row):
        return self._function(*(row[field] for field in self._fields))


class in_reduce:
    def __init__(self, parts, function):
        self._predicate_list, self._reduce_func = parts, function

    def get_fields(self):
        return {field for part in self._predicate_list for field in part.get_fields()}

    def do_include(self, row):
        return self._reduce_func([part.do_include(row) for part in self._predicate_list])


@pytest.mark.parametrize(
    ("predicate", "rule"),
    [
        (in_set([3, 500, 5000], "index"), lambda index: index in (3, 500)),
        (in_set(["row 7"], "name"), lambda index: index == 7),
        (
            in_lambda(["index", "name"], lambda index, name: index < 20 and name.endswith("3")),
            lambda index: index in (3, 13),
        ),
        (in_reduce([in_set(range(10), "index"), in_set(["row 7", "row 70"], "name")], all), lambda index: index == 7),
        (in_reduce([in_set([1], "index"), in_set(["row 7"], "name")], any), lambda index: index in (1, 7)),
        (in_lambda(["index"], lambda index: False), lambda index: False),
    ],
)
def test_predicates_keep_what_they_say(path, predicate, rule):
    wanted = [index for index in range(1000) if rule(index)]
    assert indexes(make_reader(path, predicate=predicate)) == wanted
    # The fields of a predicate need not be selected.
    with make_reader(path, schema_fields=["x"], predicate=predicate) as reader:
        assert sorted(int(row.x[0]) for row in reader) == wanted
        assert not wanted or row_fields(path, predicate) == ("x",)


def row_fields(path, predicate):
    with make_reader(path, schema_fields=["x"], predicate=predicate) as reader:
        return next(reader)._fields


def test_filters_and_a_predicate_hold_together(path):
    filters = [[("index", "<", 5)], [("index", ">", 990)]]
    assert indexes(make_reader(path, predicate=in_set([3, 500, 995], "index"), filters=filters)) == [3, 995]


def test_a_transform_of_rows(path):
    def function(row):
        return {"half": row["index"] / 2, "x": row["x"][:1]}

    spec = TransformSpec(function, edit_fields=[edit_field("half", np.float64, ())], removed_fields=["index", "name"])
    with make_reader(path, transform_spec=spec, shuffle_rows=False, shuffle_row_groups=False) as reader:
        row = [next(reader) for _ in range(4)][3]
    assert row._fields == ("x", "half") and (row.half, row.x.shape) == (1.5, (1,))


def test_a_transform_may_only_select(path):
    with make_reader(path, transform_spec=TransformSpec(selected_fields=["name", "index"])) as reader:
        assert next(reader)._fields == ("name", "index")
    with pytest.raises(ValueError, match="only one of them"):
        TransformSpec(removed_fields=["x"], selected_fields=["index"])
    spec = TransformSpec(lambda row: {}, removed_fields=["x"])
    with make_reader(path, transform_spec=spec) as reader, pytest.raises(ValueError, match="has no field 'index'"):
        next(reader)


def test_a_transform_of_batches_gets_a_data_frame(path):
    pandas = pytest.importorskip("pandas", reason="a data frame needs pandas")

    def function(frame):
        assert isinstance(frame, pandas.DataFrame)
        frame["index"] = frame["index"] + 1
        return frame

    with make_batch_reader(path, transform_spec=TransformSpec(function)) as reader:
        batches = list(reader)
    assert sorted(int(index) for batch in batches for index in batch.index) == list(range(1, 1001))
    assert batches[0].x.shape == (len(batches[0].index), 4)


def test_without_pandas_it_is_said(path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    spec = TransformSpec(lambda frame: frame)
    with make_batch_reader(path, transform_spec=spec) as reader, pytest.raises(ImportError, match="install pandas"):
        next(reader)
