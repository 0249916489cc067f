"""The columns of every writer as arrays and tensors, beside pyarrow. The table in docs/data-types.md is what this test finds.

UPDATE_DOCS=1 writes the table.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elasticrun.data import ParquetDataset

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
WRITE = HERE / "writers" / "write.py"
DOCUMENT = ROOT / "docs" / "data-types.md"
BATCH = 7
WRITERS = {
    "pyarrow": "pyarrow",
    "polars": "Polars",
    "duckdb": "DuckDB",
    "fastparquet": "fastparquet (pandas)",
    "datasets": "Hugging Face datasets",
    "spark": "Spark",
}

pytestmark = pytest.mark.full


def python(name):
    """The interpreter of an environment."""
    script = ROOT / "worker" / "python" / "venv.sh"
    made = subprocess.run([script, name], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.split()[-1]


def expected(array):
    """The values as pyarrow has them: times as numbers of units."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return expected(array.dictionary_decode())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_temporal(kind):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_map(kind):
        return [None if row is None else [list(pair) for pair in row] for row in array.to_pylist()]
    return array.to_pylist()


def found(column):
    """The values of a column of a batch, likewise."""
    if isinstance(column, dict):
        fields = {name: found(values) for name, values in column.items()}
        return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    if column.dtype == object:
        return [value if value is None or isinstance(value, (str, bytes)) else one(value) for value in column]
    if column.dtype.kind in "Mm":
        numbers = column.view("int64").tolist()
        return [None if gone else number for number, gone in zip(numbers, np.isnat(column), strict=True)]
    if column.dtype.kind == "f" and column.ndim == 1:
        return [None if value != value else value for value in column.tolist()]
    return column.tolist()


def one(value):
    return found(value) if isinstance(value, (dict, np.ndarray)) else value


def is_bytes(kind):
    return pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind)


def as_bytes(values):
    return [bytes(value) if isinstance(value, list) else value for value in values]


def form_of(columns):
    """How NumPy has a column in all batches."""
    forms = set()
    for column in columns:
        if isinstance(column, dict):
            return "its fields"
        sizes = ["rows", *map(str, column.shape[1:])]
        inner = {type(value).__name__ for value in column if value is not None} if column.dtype == object else set()
        named = "object" if not inner else "object: " + ", ".join(sorted(inner)).replace("ndarray", "arrays")
        forms.add(f"({', '.join(sizes)}) {named if column.dtype == object else column.dtype}")
    return " or ".join(sorted(forms))


def tensor_of(name, batches):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [batch.torch() for batch in batches]
    own = sorted({key for each in tensors for key in each if key == name or key.startswith(f"{name}.")})
    if not own:
        return "left out"
    texts = [f"{key[len(name) :]}: " * (key != name) + str(tensors[0][key].dtype).removeprefix("torch.") for key in own]
    assert all({key: each[key].dtype for key in own} == {key: tensors[0][key].dtype for key in own} for each in tensors)
    return ", ".join(texts)


def table_of(path):
    """Compares all columns, and returns a line for each: its name, its Arrow type, NumPy, torch."""
    data = ParquetDataset(path, batch_size=BATCH, shuffle=False)
    stored = pq.read_table(path)
    lines = []
    for name, kind in data.schema.items():
        batches = list(ParquetDataset(path, batch_size=BATCH, shuffle=False, columns=[name]))
        array = stored[name].combine_chunks()
        array = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
        columns = [batch[name] for batch in batches]
        # Days that pyarrow has stored as milliseconds are days for itself.
        seen = [column.astype("datetime64[D]") for column in columns] if pa.types.is_date32(array.type) else columns
        values = [value for column in seen for value in found(column)]
        if is_bytes(array.type):
            values = as_bytes(values)
        if pa.types.is_map(array.type):
            values = [
                [list(pair) for pair in zip(*row.values(), strict=True)] if isinstance(row, dict) else row
                for row in maps(columns)
            ]
        assert values == expected(array), (path, name, array.type)
        lines.append((name, str(array.type).replace("\n", " "), form_of(columns), tensor_of(name, batches)))
        assert kind
    return lines


def maps(columns):
    return [{key: found(values) for key, values in row.items()} for column in columns for row in column]


def test_each_column_of_each_writer(tmp_path):
    text = [HEAD]
    for writer, title in WRITERS.items():
        path = tmp_path / f"{writer}.parquet"
        interpreter = python("spark4" if writer == "spark" else "writers")
        subprocess.run([interpreter, WRITE, writer, path], check=True, capture_output=True)
        text.append(f"\n## {title}\n\n| column | read by pyarrow as | NumPy | torch |\n|---|---|---|---|\n")
        text += [f"| {' | '.join(line)} |\n" for line in table_of(path)]
    made = "".join(text)
    if os.environ.get("UPDATE_DOCS"):
        DOCUMENT.write_text(made)
    assert DOCUMENT.read_text() == made, "UPDATE_DOCS=1 pytest data/test_writers.py writes docs/data-types.md"


HEAD = """# Types of columns

Each table is what `make test-full` finds: a file of this writer with all types that it has, read in batches, with all values equal to
those that pyarrow reads. No column has a form here. [data.md](data.md#lists-of-any-length-nulls-and-images) tells what `forms` does for
lists of any length and for integers with nulls.

Not in the tables: intervals, which only `batch.arrow()` has (indexing is a `TypeError`), and files that are encrypted, which the reader
refuses (`DataError`).
"""
