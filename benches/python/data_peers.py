"""Measures reading a data set with other readers: one epoch of the column `x`, as one line of JSON.

Usage: data_peers.py elasticrun|pyarrow|values|petastorm|loader|batched list|binary|tokens|images DIRECTORY

All produce batches of shape (1024, 128), but for tokens and images, whose rows differ in size: pyarrow gives the offsets and
the values of 1,024 rows. "pyarrow" reads one row group after the other without a shuffle, by the fastest way
to NumPy for the type. For bytes, that is a view of its buffers, which needs rows of equal length without nulls. "values" uses
the Python values of pyarrow for bytes. "petastorm" shuffles row groups, with its defaults. Its loaders for torch, DataLoader and
BatchedDataLoader, also shuffle 16,384 rows and do not support bytes. torch is found in TORCH_SITE. "elasticrun" reads by the Python package that
PYTHONPATH names.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

# Else threads that nobody needs here wait busily, and count.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

BATCH, WIDTH, SHUFFLED = 1024, 128, 16_384
RAGGED = ("tokens", "images")


def pyarrow_batches(kind: str, directory: Path):
    """Batches of views of a column, each copied as a batch of a training is."""
    import pyarrow.parquet as pq

    for path in sorted(directory.iterdir()):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            for chunk in file.read_row_group(group, columns=["x"]).column(0).chunks:
                if kind == "list":
                    values = chunk.flatten().to_numpy()
                else:
                    values = np.frombuffer(chunk.buffers()[2], np.float32)
                rows = values.reshape(-1, WIDTH)
                for start in range(0, len(rows), BATCH):
                    yield rows[start : start + BATCH].copy()


def ragged_batches(directory: Path):
    """Offsets and values of lists of int32 or of byte strings, each copied as a batch of a training is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(directory.iterdir()):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            for chunk in file.read_row_group(group, columns=["x"]).column(0).chunks:
                is_list = pa.types.is_list(chunk.type)
                values = chunk.values.to_numpy() if is_list else np.frombuffer(chunk.buffers()[2], np.uint8)
                offsets = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset :][: len(chunk) + 1]
                for start in range(0, len(chunk), BATCH):
                    part = offsets[start : start + BATCH + 1]
                    yield part - part[0], values[part[0] : part[-1]].copy()


def elasticrun_batches(kind: str, directory: Path):
    """Batches of the Python package, shuffled among 16,384 rows, with the settings of the program bench_data.

    Imports first: they are no part of reading.
    """
    import elasticrun
    from elasticrun.data import ParquetDataset

    elasticrun.init()
    options = {"shuffle_rows": SHUFFLED, "memory": 16 << 20, "threads": 2}

    def batches():
        data = ParquetDataset(directory, batch_size=BATCH, columns=["x"], **options)
        for _ in data.epochs(1):
            for batch in data:
                yield batch.arrow()["x"] if kind in RAGGED else batch["x"]

    return batches()


def value_batches(directory: Path):
    """Batches of a column of bytes, whatever their lengths: joined from pyarrow's values."""
    import pyarrow.parquet as pq

    for path in sorted(directory.iterdir()):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            values = b"".join(file.read_row_group(group, columns=["x"]).column(0).to_pylist())
            rows = np.frombuffer(values, np.float32).reshape(-1, WIDTH)
            for start in range(0, len(rows), BATCH):
                yield rows[start : start + BATCH].copy()


def petastorm_batches(kind: str, directory: Path):
    """What make_batch_reader gives, as an array."""
    import warnings

    warnings.filterwarnings("ignore")
    from petastorm import make_batch_reader

    with make_batch_reader(f"file://{directory}", workers_count=2, schema_fields=["x"], num_epochs=1) as reader:
        for batch in reader:
            rows = batch.x
            if kind == "binary":
                rows = np.stack([np.frombuffer(row, np.float32) for row in rows])
            elif rows.ndim == 1:
                rows = np.stack(rows)
            for start in range(0, len(rows), BATCH):
                yield rows[start : start + BATCH].copy()


def torch_batches(loader: str, directory: Path):
    """What a loader for torch gives, over make_batch_reader."""
    import warnings

    warnings.filterwarnings("ignore")
    from petastorm import make_batch_reader
    from petastorm.pytorch import BatchedDataLoader, DataLoader

    reader = make_batch_reader(f"file://{directory}", workers_count=2, schema_fields=["x"], num_epochs=1)
    kind = {"loader": DataLoader, "batched": BatchedDataLoader}[loader]
    with kind(reader, batch_size=BATCH, shuffling_queue_capacity=SHUFFLED) as batches:
        for batch in batches:
            yield batch["x"].numpy()


def processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_mib() -> int:
    """The most memory that was resident. Not of getrusage, which counts the parent's before the exec."""
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) // 1024


def main() -> None:
    peer, kind, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
    batches = {
        "elasticrun": lambda: elasticrun_batches(kind, directory),
        "pyarrow": lambda: ragged_batches(directory) if kind in RAGGED else pyarrow_batches(kind, directory),
        "values": lambda: value_batches(directory),
        "petastorm": lambda: petastorm_batches(kind, directory),
        "loader": lambda: torch_batches("loader", directory),
        "batched": lambda: torch_batches("batched", directory),
    }[peer]()
    if peer in ("loader", "batched"):
        # Behind petastorm's own environment, which has an older NumPy. What is imported is no part of reading.
        sys.path.append(os.environ["TORCH_SITE"])
        import torch  # noqa: F401
    wall, before, rows = time.perf_counter(), processor(), 0
    for batch in batches:
        if peer == "elasticrun":
            rows += len(batch)
            continue
        if kind in RAGGED:
            rows += len(batch[0]) - 1
            continue
        assert batch.shape[1] == WIDTH and batch.dtype == np.float32, (batch.shape, batch.dtype)
        rows += len(batch)
    report = {
        "rows": rows,
        "us_per_row": (processor() - before) / rows * 1e6,
        "rows_per_s": rows / (time.perf_counter() - wall),
        "rss_mib": peak_mib(),
    }
    print(json.dumps(report))


main()
