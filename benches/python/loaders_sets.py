"""Data sets for the comparison of loaders, the same values in each format, from a fixed seed.

Each is a directory with Parquet files, `parquet`, as pyarrow writes them with snappy and row groups of a few MiB. Beside the columns
that are read is one that is not, `unread`. The images are also there as MDS, `mds`.
"""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

FILES = 4
SIDE, WIDTH = 224, 768

#: Rows, rows of a row group, rows of a batch, and the column that is read, by the name of the set.
SETS = {
    "jpeg": (3_072, 256, 64, "image"),
    "tokens": (40_960, 2_048, 256, "tokens"),
    "text": (102_400, 5_120, 256, "text"),
    "embeddings": (61_440, 2_560, 256, "embedding"),
}


def write(name: str, root: Path) -> Path:
    """Writes a set into a directory of its own, unless it is there, and returns that."""
    directory = root / name
    if directory.exists():
        return directory
    rows, group, _, column = SETS[name]
    random = np.random.default_rng(0)
    values = {"jpeg": jpeg_images, "tokens": token_lists, "text": texts, "embeddings": embeddings}[name](random, rows)
    table = pa.table({column: values, "unread": pa.array([random.bytes(256) for _ in range(rows)], pa.binary())})
    # What is cut short is no set.
    unfinished = root / f"{name}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "parquet").mkdir(parents=True)
    for number in range(FILES):
        part = table.slice(number * rows // FILES, rows // FILES)
        path = unfinished / "parquet" / f"part-{number}.parquet"
        pq.write_table(part, path, row_group_size=group, use_dictionary=False)
    if name == "jpeg":
        try:
            write_mds(unfinished / "mds", column, values)
        except ImportError:
            # The reader will say so.
            pass
    unfinished.rename(directory)
    return directory


def jpeg_images(random: np.random.Generator, rows: int) -> pa.Array:
    """Images of soft shapes with some noise, about 13 KB each: photographs of this size have 10 to 30."""

    def encoded() -> Iterator[bytes]:
        for _ in range(rows):
            shapes = Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            pixels = np.asarray(shapes.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.int16)
            noise = random.integers(-12, 13, (SIDE, SIDE, 1), dtype=np.int16)
            target = io.BytesIO()
            Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)).save(target, "JPEG", quality=85)
            yield target.getvalue()

    return pa.array(encoded(), pa.binary())


def token_lists(random: np.random.Generator, rows: int) -> pa.Array:
    """Numbers of tokens, most of them small."""
    offsets = np.concatenate([[0], np.cumsum(random.integers(10, 1001, rows))]).astype(np.int32)
    tokens = np.minimum(random.zipf(1.2, offsets[-1]), 50_000).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(tokens))


def texts(random: np.random.Generator, rows: int) -> pa.Array:
    """Texts of 10 to 200 words, most of them common. One letter in 100 is not of ASCII, as in several languages of Europe."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxzäéßø"))
    frequencies = np.array([0.99 / 26] * 26 + [0.01 / 4] * 4)
    vocabulary = np.array(
        ["".join(random.choice(letters, size, p=frequencies)) for size in random.integers(2, 10, 20_000)]
    )
    lengths = random.integers(10, 201, rows)
    words = vocabulary[np.minimum(random.zipf(1.3, lengths.sum()), len(vocabulary)) - 1].tolist()
    ends = np.cumsum(lengths).tolist()
    return pa.array((" ".join(words[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)))


def embeddings(random: np.random.Generator, rows: int) -> pa.Array:
    """Vectors of float32, which compression does not shrink."""
    return pa.FixedSizeListArray.from_arrays(pa.array(random.standard_normal(rows * WIDTH, dtype=np.float32)), WIDTH)


def write_mds(directory: Path, column: str, values: pa.Array) -> None:
    """The same bytes as MosaicML Streaming stores them."""
    from streaming import MDSWriter

    with MDSWriter(out=str(directory), columns={column: "bytes"}) as writer:
        for value in values:
            writer.write({column: value.as_py()})


def column_bytes(directory: Path, column: str) -> int:
    """Bytes of a column in the Parquet files."""
    total = 0
    for path in sorted((directory / "parquet").iterdir()):
        metadata = pq.read_metadata(path)
        index = metadata.schema.to_arrow_schema().names.index(column)
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        # A column of lists has one leaf too, so the numbers of columns and leaves agree.
        total += sum(group.column(index).total_compressed_size for group in groups)
    return total
