"""Each type of a column is an array of one form in all batches, and a tensor or a named refusal."""

from __future__ import annotations

import datetime as dt
import itertools
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.images import png

from elasticrun.data import Fill, Image, Nest, Pack, Pad, ParquetDataset
from elasticrun.errors import DataError

ROWS = 23


def write(path, columns, **options):
    table = pa.table({"index": pa.array(range(ROWS)), **columns})
    pq.write_table(table, path / "rows.parquet", row_group_size=10, **options)
    return path / "rows.parquet"


def batches(path, size=4, **options):
    """All batches, in the order of the rows."""
    return list(ParquetDataset(path, batch_size=size, shuffle=False, **options))


def with_nulls(values):
    return [None if row % 5 == 3 else value for row, value in enumerate(values)]


NUMBERS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMES = {
    pa.date32(): "datetime64[D]",
    pa.date64(): "datetime64[D]",
    pa.time32("ms"): "timedelta64[ms]",
    pa.time64("us"): "timedelta64[us]",
    pa.time64("ns"): "timedelta64[ns]",
    pa.timestamp("ms"): "datetime64[ms]",
    pa.timestamp("us"): "datetime64[us]",
    pa.timestamp("ns"): "datetime64[ns]",
    pa.timestamp("us", "Europe/Berlin"): "datetime64[us]",
    pa.duration("us"): "timedelta64[us]",
}


@pytest.mark.parametrize("kind", [*NUMBERS, *FLOATS, pa.bool_()], ids=str)
def test_numbers(kind, tmp_path):
    values = (
        pa.array([row % 2 for row in range(ROWS)]).cast(kind)
        if kind != pa.bool_()
        else [r % 2 == 0 for r in range(ROWS)]
    )
    path = write(tmp_path, {"x": pa.array(values, kind)})
    found = batches(path)
    dtype = found[0]["x"].dtype
    assert {batch["x"].dtype for batch in found} == {dtype}
    assert np.concatenate([batch["x"] for batch in found]).tolist() == pa.array(values, kind).to_pylist()
    assert torch.cat([batch.torch()["x"] for batch in found]).numpy().dtype == dtype


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_null_is_nan_in_floats(kind, tmp_path):
    path = write(tmp_path, {"x": pa.array(with_nulls(np.arange(ROWS, dtype="float16")), kind)})
    found = batches(path)
    assert {batch["x"].dtype for batch in found} == {np.dtype(f"f{kind.bit_width // 8}")}
    values = torch.cat([batch.torch()["x"] for batch in found])
    assert values.isnan().tolist() == [row % 5 == 3 for row in range(ROWS)]
    assert np.concatenate([batch.mask("x") for batch in found]).tolist() == [row % 5 != 3 for row in range(ROWS)]


@pytest.mark.parametrize(("kind", "dtype"), TIMES.items(), ids=map(str, TIMES))
def test_dates_and_times_have_their_unit_and_nat_for_null(kind, dtype, tmp_path):
    counts = pa.array([86_400_000 * row for row in range(ROWS)], pa.int64())
    if kind == pa.date32() or str(kind).startswith("time32"):
        counts = pa.array(range(ROWS), pa.int32())
    elif str(kind).startswith("time64"):
        counts = pa.array(range(ROWS), pa.int64())
    values = counts.cast(kind)
    nullable = pa.array(with_nulls(values.to_pylist()) if "ns" not in str(kind) else with_nulls(values), kind)
    path = write(tmp_path, {"x": values, "y": nullable})
    found = batches(path)
    x = np.concatenate([batch["x"] for batch in found])
    y = np.concatenate([batch["y"] for batch in found])
    assert x.dtype == y.dtype
    assert x.dtype.kind == np.dtype(dtype).kind
    units = x.astype(dtype).view("int64")
    assert units.tolist() == [c // 86_400_000 if kind == pa.date64() else c for c in counts.to_pylist()]
    assert np.isnat(y).tolist() == [row % 5 == 3 for row in range(ROWS)]
    assert (x[~np.isnat(y)] == y[~np.isnat(y)]).all()
    tensors = found[0].torch()
    assert tensors["x"].dtype == torch.int64 and tensors["x"].tolist() == x[:4].view("int64").tolist()


@pytest.mark.parametrize("kind", [*NUMBERS, pa.bool_()], ids=str)
def test_other_numbers_with_nulls_need_a_value(kind, tmp_path):
    values = with_nulls([row % 2 for row in range(ROWS)]) if kind != pa.bool_() else with_nulls([True] * ROWS)
    path = write(tmp_path, {"x": pa.array(values, kind)})
    for read in (lambda batch: batch["x"], lambda batch: batch.torch()):
        with pytest.raises(TypeError, match=r"column 'x' has nulls, and \w+ has no value for them.*Fill"):
            read(batches(path)[0])
    found = batches(path, forms={"x": Fill(1, mask="has_x")})
    assert list(found[0]) == ["index", "x", "has_x"]
    tensors = [batch.torch() for batch in found]
    assert torch.cat([t["x"] for t in tensors]).tolist() == [1 if v is None else v for v in values]
    assert torch.cat([t["has_x"] for t in tensors]).tolist() == [v is not None for v in values]
    assert {t["x"].dtype for t in tensors} == {tensors[0]["x"].dtype}


def test_decimals_are_exact_in_numpy_and_float64_in_torch(tmp_path):
    values = [Decimal(row) / 4 for row in range(ROWS)]
    columns = {
        f"d{bits}": pa.array(with_nulls(values), getattr(pa, f"decimal{bits}")(7, 2)) for bits in (32, 64, 128, 256)
    }
    path = write(tmp_path, columns)
    for batch in batches(path):
        rows = batch["index"]
        for name in columns:
            assert batch[name].tolist() == [None if row % 5 == 3 else Decimal(int(row)) / 4 for row in rows]
            tensor = batch.torch()[name]
            assert tensor.dtype == torch.float64
            assert tensor.nan_to_num(-1).tolist() == [-1 if row % 5 == 3 else row / 4 for row in rows]
    filled = batches(path, forms={"d64": Fill(Decimal(-1))})[0]
    assert filled["d64"][3] == Decimal(-1) and filled.torch()["d64"].tolist() == [0, 0.25, 0.5, -1]


def test_strings_are_objects_and_torch_names_what_it_leaves_out(tmp_path):
    text = [f"row {row}" for row in range(ROWS)]
    columns = {
        "text": pa.array(with_nulls(text)),
        "large": pa.array(text, pa.large_string()),
        "view": pa.array(text, pa.string_view()),
        "word": pa.array(text).dictionary_encode(),
        "nothing": pa.nulls(ROWS),
    }
    path = write(tmp_path, columns)
    found = batches(path)
    for name in ("large", "view", "word"):
        assert np.concatenate([batch[name] for batch in found]).tolist() == text, name
    assert np.concatenate([batch["text"] for batch in found]).tolist() == with_nulls(text)
    assert np.concatenate([batch["nothing"] for batch in found]).tolist() == [None] * ROWS
    with pytest.warns(RuntimeWarning, match="leave out the columns text .*large.*view.*word.*nothing") as seen:
        assert {name for batch in found for name in batch.torch()} == {"index"}
    assert len(seen) == 1
    filled = batches(path, forms={"text": Fill("")})
    assert np.concatenate([batch["text"] for batch in filled]).tolist() == [value or "" for value in with_nulls(text)]


def test_a_dictionary_of_numbers_is_their_values(tmp_path):
    values = pa.array([row % 3 for row in range(ROWS)], pa.int32())
    path = write(tmp_path, {"x": values.dictionary_encode()})
    assert torch.cat([batch.torch()["x"] for batch in batches(path)]).tolist() == values.to_pylist()


def ragged(row, start=0):
    return list(range(start, start + row * 3 % 7))


TOKENS = [ragged(row, row) for row in range(ROWS)]


@pytest.mark.parametrize("element", [pa.int32(), pa.uint16(), pa.float32(), pa.bool_(), pa.timestamp("us")], ids=str)
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list], ids=["list", "large_list"])
def test_lists_of_any_length(element, kind, tmp_path):
    def value(token):
        return bool(token % 2) if element == pa.bool_() else token

    tokens = [[value(token) for token in row] for row in TOKENS]
    stored = pa.array(tokens, kind(pa.int64() if element == pa.timestamp("us") else element)).cast(kind(element))
    path = write(tmp_path, {"tokens": stored})

    def as_numbers(array):
        return (array.view("int64") if array.dtype.kind == "M" else array).tolist()

    # Without a form: arrays over the same memory.
    plain = [row for batch in batches(path) for row in batch["tokens"]]
    assert [as_numbers(np.asarray(row)) for row in plain] == tokens

    padding = np.datetime64(7, "us") if element == pa.timestamp("us") else value(7)
    form = Pad(padding, multiple_of=4, mask="is_token")
    for batch in batches(path, forms={"tokens": form}):
        longest = max(len(tokens[row]) for row in batch["index"])
        length = -(-longest // 4) * 4
        expected = [tokens[row] + [value(7)] * (length - len(tokens[row])) for row in batch["index"]]
        assert as_numbers(batch["tokens"]) == expected
        assert batch["is_token"].sum(axis=1).tolist() == [len(tokens[row]) for row in batch["index"]]
        assert batch.torch()["tokens"].shape == (batch.rows, length)

    for batch in batches(path, forms={"tokens": Pack()}):
        tensors = batch.torch()
        offsets = tensors["tokens.offsets"].tolist()
        parts = [tensors["tokens"][a:b].tolist() for a, b in itertools.pairwise(offsets)]
        assert parts == [tokens[row] for row in batch["index"]]

    for batch in batches(path, forms={"tokens": Nest()}):
        nested = batch.torch()["tokens"]
        assert nested.layout == torch.jagged
        assert [row.tolist() for row in nested.unbind()] == [tokens[row] for row in batch["index"]]


def test_a_form_holds_also_for_rows_of_one_length_and_without_rows(tmp_path):
    path = write(tmp_path, {"x": pa.array([[row, row] for row in range(ROWS)])})
    assert batches(path, forms={"x": Pad(0)})[0]["x"].tolist() == [[row, row] for row in range(4)]
    found = batches(path, forms={"x": Pad(-1, length=3, mask="m")}, where=[("index", ">", 100)])
    for batch in found:
        assert batch.rows == 0
        assert {name: tuple(tensor.shape) for name, tensor in batch.torch().items()} == {
            "index": (0,),
            "x": (0, 3),
            "m": (0, 3),
        }


def test_padding_takes_the_place_of_nulls_on_either_side(tmp_path):
    rows = [[1, None, 3], None, [], [4]] * 6
    path = write(tmp_path, {"x": pa.array(rows[:ROWS], pa.list_(pa.int16()))})
    right = batches(path, forms={"x": Pad(9, mask="m")})[0]
    assert right["x"].tolist() == [[1, 9, 3], [9, 9, 9], [9, 9, 9], [4, 9, 9]]
    assert right["m"].tolist() == [[True, False, True], [False] * 3, [False] * 3, [True, False, False]]
    left = batches(path, forms={"x": Pad(9, side="left", mask="m")})[0]
    assert left["x"].tolist() == [[1, 9, 3], [9, 9, 9], [9, 9, 9], [9, 9, 4]]
    assert left["m"].tolist() == [[True, False, True], [False] * 3, [False] * 3, [False, False, True]]
    assert left.mask("x").tolist() == [True, False, True, True]
    cut = batches(path, forms={"x": Pad(9, length=2, truncate=True)})[0]
    assert cut["x"].tolist() == [[1, 9], [9, 9], [9, 9], [4, 9]]
    with pytest.raises(
        DataError, match=r"column 'x': row 0 of the batch has 3 values, and there is room for 2.*truncate=True"
    ):
        batches(path, forms={"x": Pad(9, length=2)})[0]["x"]


def test_lists_of_vectors_are_padded_by_vectors(tmp_path):
    vectors = [[[row, 0.5]] * (row % 3) for row in range(ROWS)]
    path = write(tmp_path, {"x": pa.array(vectors, pa.list_(pa.list_(pa.float32(), 2)))})
    batch = batches(path, forms={"x": Pad(-1.0, mask="m")})[0]
    assert batch["x"].shape == (4, 2, 2) and batch["m"].shape == (4, 2)
    assert batch["x"].tolist() == [(vectors[row] + [[-1.0, -1.0]] * 2)[:2] for row in range(4)]


def test_fixed_size_lists_with_nulls(tmp_path):
    rows = with_nulls([[row, row + 1] for row in range(ROWS)])
    floats = pa.array(rows, pa.list_(pa.float32(), 2))
    path = write(tmp_path, {"f": floats, "i": pa.array(rows, pa.list_(pa.int32(), 2))})
    with pytest.raises(TypeError, match="column 'i' has nulls, and int32"):
        batches(path)[0]["i"]
    found = batches(path, forms={"i": Fill(-1)})
    assert np.isnan(np.concatenate([batch["f"] for batch in found]))[:, 0].tolist() == [
        row % 5 == 3 for row in range(ROWS)
    ]
    assert np.concatenate([batch["i"] for batch in found]).tolist() == [
        [-1, -1] if row is None else row for row in rows
    ]


def test_structures_are_their_fields(tmp_path):
    places = [{"x": row, "at": {"name": f"p{row}", "y": row / 2}} for row in range(ROWS)]
    path = write(tmp_path, {"place": pa.array(places)})
    batch = batches(path)[0]
    assert batch["place"]["x"].tolist() == batch["place.x"].tolist() == [0, 1, 2, 3]
    assert batch["place.at.y"].tolist() == [0, 0.5, 1, 1.5]
    with pytest.warns(RuntimeWarning, match=r"leave out the columns place\.at\.name"):
        tensors = batch.torch()
    assert tensors.keys() == {"index", "place.x", "place.at.y"}
    with pytest.raises(KeyError, match=r"place\.z"):
        batch["place.z"]
    # As Hugging Face stores images.
    images = pa.array([{"bytes": bytes(range(row)), "path": None} for row in range(ROWS)])
    path = write(tmp_path, {"image": images})
    batch = batches(path, forms={"image.bytes": Pack()})[1]
    assert batch["image.bytes"].tolist() == [*range(4), *range(5), *range(6), *range(7)]


def test_maps_are_lists_of_keys_and_values(tmp_path):
    maps = [[("a", row), ("b", 2 * row)][: row % 3] for row in range(ROWS)]
    path = write(tmp_path, {"m": pa.array(maps, pa.map_(pa.string(), pa.int64()))})
    rows = [row for batch in batches(path) for row in batch["m"]]
    names = list(rows[1])
    assert [list(zip(*(row[name].tolist() for name in names), strict=True)) for row in rows] == maps


def test_lists_of_strings_and_of_lists_are_objects(tmp_path):
    words = [["a", None, "b"][: row % 4] for row in range(ROWS)]
    deep = [[[row] * 2, [row]][: row % 3] for row in range(ROWS)]
    path = write(tmp_path, {"words": pa.array(words), "deep": pa.array(deep)})
    found = batches(path)
    assert [row.tolist() for batch in found for row in batch["words"]] == words
    assert [[inner.tolist() for inner in row] for batch in found for row in batch["deep"]] == deep
    with pytest.warns(RuntimeWarning, match=r"words \(List.*deep \(List"):
        found[0].torch()


@pytest.mark.parametrize(
    ("forms", "error", "what"),
    [
        ({"y": Pad()}, ValueError, "there is no column 'y'"),
        ({"index": "pad"}, TypeError, "must be a Fill, Image, Pad, Pack or Nest"),
        ({"index": Fill(0, mask="text")}, ValueError, "the name 'text' is that of another column"),
        ({"index": Pad()}, TypeError, "only lists of numbers"),
        ({"index": Pack()}, TypeError, "only lists and byte strings"),
        ({"index": Fill(0.5)}, ValueError, "0.5 is no value of the column's type, int64"),
        ({"index": Fill("x")}, ValueError, "no value of the column's type"),
        ({"index": Fill([1, 2])}, ValueError, "no value of the column's type"),
        ({"tokens": Pad(300)}, ValueError, "300 is no value of the column's type, int8"),
        ({"text": Pad()}, TypeError, "only lists of numbers"),
    ],
)
def test_forms_that_cannot_be(forms, error, what, tmp_path):
    columns = {"text": pa.array(["a"] * ROWS), "tokens": pa.array([[1]] * ROWS, pa.list_(pa.int8()))}
    path = write(tmp_path, columns)
    with pytest.raises(error, match=what):
        batch = batches(path, forms=forms)[0]
        for name in forms:
            batch[name]
    with pytest.raises(error, match=what):
        batches(path, forms=forms)[0].torch()


def test_forms_that_say_no():
    for make, what in [
        (lambda: Pad(length=-1), "length=-1"),
        (lambda: Pad(multiple_of=0), "multiple_of=0"),
        (lambda: Pad(length=1 << 40), "length=1099511627776"),
        (lambda: Pad(side="both"), "side='both'"),
    ]:
        with pytest.raises(ValueError, match=what):
            make()
    with pytest.raises(
        TypeError, match=r"Pad\(truncate=2048\): must be True or False, and length= says to what length"
    ):
        Pad(truncate=2048)


def test_a_transform_gets_formed_columns_and_may_return_structures(tmp_path):
    path = write(tmp_path, {"tokens": pa.array(TOKENS), "place": pa.array([{"x": 1}] * ROWS)})

    def transform(columns):
        return {
            "tokens": columns["tokens"] * 2,
            "length": columns["m"].sum(axis=1),
            "place": columns["place"],
            "name": np.full(len(columns["m"]), "a", dtype=object),
        }

    found = batches(path, forms={"tokens": Pad(0, mask="m")}, transform=transform)
    with pytest.warns(RuntimeWarning, match="leave out the columns name") as seen:
        tensors = [batch.torch() for batch in found][1]
    assert len(seen) == 1
    assert tensors["length"].tolist() == [len(TOKENS[row]) for row in range(4, 8)]
    assert tensors["place.x"].tolist() == [1] * 4 and int(tensors["tokens"][0].max()) == 2 * max(TOKENS[4])


def test_days_compare_with_dates(tmp_path):
    path = write(tmp_path, {"day": pa.array([dt.date(2026, 1, 1) + dt.timedelta(row) for row in range(ROWS)])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (batches(path)[0]["day"] >= np.datetime64("2026-01-02")).tolist() == [False, True, True, True]


def test_images_are_one_array_of_one_size(tmp_path):
    images = with_nulls([png(4 + row % 3, 6, (row, 0, 100)) for row in range(ROWS)])
    structs = [None if image is None else {"bytes": image, "path": None} for image in images]
    path = write(tmp_path, {"image": pa.array(images), "hf": pa.array(structs)})
    forms = {"image": Image((4, 6), mask="has_image"), "hf": Image((2, 2), mode="L", crop=True)}
    for batch in batches(path, forms=forms, threads=3):
        rows = batch["index"].tolist()
        tensors = batch.torch()
        assert tensors["image"].shape == (batch.rows, 4, 6, 3) and tensors["image"].dtype == torch.uint8
        assert tensors["hf"].shape == (batch.rows, 2, 2)
        assert tensors["has_image"].tolist() == [row % 5 != 3 for row in rows]
        for row, image, gray in zip(rows, tensors["image"], tensors["hf"], strict=True):
            colour = [0, 0, 0] if row % 5 == 3 else [row, 0, 100]
            assert image.unique(dim=0).reshape(-1, 3).unique(dim=0).tolist() == [colour]
            assert gray.unique().tolist() == [round(0.299 * colour[0] + 0.114 * colour[2])]
    empty = batches(path, forms=forms, where=[("index", ">", 99)])[0]
    assert empty["image"].shape == (0, 4, 6, 3) and empty["hf"].shape == (0, 2, 2)


def test_an_image_that_cannot_be_decoded_is_an_error_or_black_and_counted(tmp_path):
    images = [b"GIF89a" if row == 2 else png(2, 2, (row, row, row)) for row in range(ROWS)]
    path = write(tmp_path, {"image": pa.array(images)})
    with pytest.raises(DataError, match="column 'image': .*row 2 of the batch.*neither PNG nor JPEG.*on_error='black'"):
        batches(path, forms={"image": Image((2, 2))})[0]["image"]
    data = ParquetDataset(path, batch_size=4, shuffle=False, forms={"image": Image((2, 2), on_error="black", mask="m")})
    first = next(iter(data))
    assert first["m"].tolist() == [True, True, False, True] and not first["image"][2].any()
    assert data.undecoded == 1
    with pytest.raises(TypeError, match="an Image is of a binary column"):
        batches(path, forms={"index": Image((2, 2))})[0]["index"]
    for wrong, what in [({"size": (0, 2)}, "size="), ({"size": (2, 2), "mode": "HSV"}, "mode='HSV'")]:
        with pytest.raises(ValueError, match=what):
            Image(**wrong)


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC")], ids=str
)
def test_conditions_on_dates_take_dates(kind, tmp_path):
    zone = dt.timezone.utc if getattr(kind, "tz", None) else None
    begin = dt.datetime(2026, 1, 1, tzinfo=zone)
    path = write(tmp_path, {"at": pa.array([begin + dt.timedelta(days=row) for row in range(ROWS)], kind)})

    def kept(*condition):
        found = batches(path, where=[("at", *condition)])
        return [int(row) for batch in found for row in batch["index"]]

    assert kept("<", begin + dt.timedelta(days=3)) == [0, 1, 2]
    assert kept(">=", dt.date(2026, 1, 20)) == [19, 20, 21, 22]
    assert kept("<=", begin + dt.timedelta(days=1, hours=7)) == [0, 1]
    assert kept("==", np.datetime64("2026-01-05")) == [4]
    assert kept("in", [np.datetime64("2026-01-05T00:00:00.000000001"), np.datetime64("2026-01-06")]) == [5]
    assert kept(">", np.datetime64("2026-01")) == list(range(1, ROWS))
    other = begin.replace(tzinfo=None if zone else dt.timezone.utc)
    for wrong in (other, dt.timedelta(1), dt.time(1), "2026-01-01", np.datetime64("NaT")):
        with pytest.raises(TypeError, match="cannot be compared with a column of type (date|timestamp)"):
            kept("<", wrong)


def test_conditions_on_times_and_durations_take_those(tmp_path):
    columns = {
        "time": pa.array([dt.time(1, row) for row in range(ROWS)], pa.time32("ms")),
        "span": pa.array([dt.timedelta(minutes=row) for row in range(ROWS)], pa.duration("us")),
    }
    path = write(tmp_path, columns)
    for column, value in [
        ("time", dt.time(1, 3)),
        ("span", dt.timedelta(minutes=3)),
        ("span", np.timedelta64(3, "m")),
        ("span", np.int64(180_000_000)),
        ("time", 3_780_000),
    ]:
        found = batches(path, where=[(column, "<", value)])
        assert [int(row) for batch in found for row in batch["index"]] == [0, 1, 2], (column, value)
