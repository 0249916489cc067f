"""Reads the data sets of loaders_sets.py by one loader, as often as it is asked to.

Usage: loaders_readers.py elasticrun|pyarrow|unshuffled|torch|mosaicml|hf|hf_iterable DIRECTORY CORES

Each line of the input is a request {"kind": .., "seconds": ..}, and is answered by a line of JSON: rows per second and processor time
of this process and all its workers. The clock of a peer runs from the first batch, so that no start is part of it, and over as many
epochs as the time allows. That of elasticrun runs from the opening of the data set to the end of the epoch, and each epoch opens it
anew: row groups are read far ahead, and these sets would stay in its memory. With {"kind": .., "whole": true} elasticrun reads one epoch, and the answer has the bytes that this process has read.

Batches are tensors, or lists of strings. All shuffle, but for "unshuffled":

elasticrun   with the defaults of ParquetDataset.
pyarrow      row groups in random order, and the rows of each of them.
unshuffled   the same without a shuffle, as the lower bound of what pyarrow takes.
torch        DataLoader with shuffle, over a table of pyarrow that lies in memory, so reading it is free. PIL decodes.
mosaicml     StreamingDataset with shuffle in a DataLoader, over MDS on this disk. PIL decodes.
hf           the Dataset in a DataLoader with shuffle, over its cache of Arrow files. PIL decodes.
hf_iterable  the same as an IterableDataset with a shuffle buffer of 1,000 rows, its default.
"""

import io
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loaders_sets import SETS, SIDE, WIDTH

#: The set of each kind of batch.
KINDS = {
    "jpeg": "jpeg",
    "tokens_padded": "tokens",
    "tokens_packed": "tokens",
    "text": "text",
    "embeddings": "embeddings",
}

Batch = Any
#: Gives the batches of one epoch, as often as it is called.
Epochs = Callable[[], Iterator[Batch]]


class Loader:
    """A loader of batches.

    Args:
        root: the directory of all sets.
        cores: number of cores, so also of workers.
    """

    def __init__(self, root: Path, cores: int) -> None:
        self.root, self.cores = root, cores
        self._prepared: dict[str, Any] = {}

    def epochs(self, kind: str) -> Epochs:
        """The batches of an epoch."""
        raise NotImplementedError

    def prepared(self, name: str, prepare: Callable[[], Any]) -> Any:
        """What is made once and used by all trials."""
        if name not in self._prepared:
            self._prepared[name] = prepare()
        return self._prepared[name]

    def torch_loader(self, data: Any, kind: str, shuffle: bool, **options: Any) -> Epochs:
        """A DataLoader with a process for each core."""
        batch = SETS[KINDS[kind]][2]
        return torch.utils.data.DataLoader(
            data,
            batch_size=batch,
            shuffle=shuffle or None,
            num_workers=self.cores,
            persistent_workers=True,
            drop_last=True,
            **options,
        ).__iter__


class ElasticRun(Loader):
    def __init__(self, root: Path, cores: int) -> None:
        super().__init__(root, cores)
        # Not later, when reading is measured.
        import elasticrun.data  # noqa: F401

    def dataset(self, kind: str) -> Any:
        from elasticrun.data import Image, Pack, Pad, ParquetDataset

        name = KINDS[kind]
        _, _, batch, column = SETS[name]
        forms = {"jpeg": Image((SIDE, SIDE)), "tokens_padded": Pad(0), "tokens_packed": Pack()}
        return ParquetDataset(
            self.root / name / "parquet",
            batch_size=batch,
            columns=[column],
            forms={column: forms[kind]} if kind in forms else None,
            threads=self.cores,
        )

    def batches(self, data: Any, kind: str) -> Iterator[Batch]:
        column = SETS[KINDS[kind]][3]
        for batch in data:
            if kind == "text":
                yield batch[column]
                continue
            tensors = batch.torch()
            yield (tensors[column], tensors[f"{column}.offsets"]) if kind == "tokens_packed" else tensors[column]

    def epochs(self, kind: str) -> Epochs:
        data = self.dataset(kind)
        return lambda: self.batches(data, kind)

    def whole(self, kind: str) -> dict[str, float]:
        """Reads an epoch, and counts the bytes."""
        before = bytes_read()
        data = self.dataset(kind)
        rows = sum(rows_of(kind, batch) for batch in self.batches(data, kind))
        return {"rows": rows, "read_bytes": bytes_read() - before, "data_bytes": data.bytes_read}


class PyArrow(Loader):
    shuffles = True

    def epochs(self, kind: str) -> Epochs:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pa.set_cpu_count(self.cores)
        name = KINDS[kind]
        _, _, size, column = SETS[name]
        files = [pq.ParquetFile(path) for path in sorted((self.root / name / "parquet").iterdir())]
        groups = [(file, number) for file in files for number in range(file.num_row_groups)]
        random = np.random.default_rng(0)

        def batches() -> Iterator[Batch]:
            order = random.permutation(len(groups)) if self.shuffles else range(len(groups))
            for file, number in (groups[at] for at in order):
                for chunk in file.read_row_group(number, columns=[column]).column(0).chunks:
                    rows = random.permutation(len(chunk)) if self.shuffles else None
                    yield from self.chunk_batches(kind, chunk, rows, size)

        return batches

    def chunk_batches(self, kind: str, chunk: Any, rows: Any, size: int) -> Iterator[Batch]:
        """The batches of a row group by the fastest way to NumPy, each in memory of its own."""
        import pyarrow as pa

        starts = range(0, len(chunk), size)
        if kind == "embeddings":
            vectors = chunk.flatten().to_numpy().reshape(-1, WIDTH)
            for start in starts:
                part = slice(start, start + size)
                yield torch.from_numpy(vectors[part].copy() if rows is None else vectors[rows[part]])
            return
        for start in starts:
            part = chunk.slice(start, size) if rows is None else chunk.take(pa.array(rows[start : start + size]))
            if kind == "text":
                yield part.to_pylist()
                continue
            values, offsets = part.flatten().to_numpy(), part.offsets.to_numpy()
            offsets = offsets - offsets[0]
            if kind == "tokens_packed":
                yield torch.from_numpy(values.copy()), torch.from_numpy(offsets)
                continue
            lengths = np.diff(offsets)
            padded = np.zeros((len(lengths), lengths.max()), np.int32)
            padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
            yield torch.from_numpy(padded)


class Unshuffled(PyArrow):
    shuffles = False


def pixels(encoded: bytes) -> torch.Tensor:
    """An image as PIL decodes it."""
    from PIL import Image

    return torch.from_numpy(np.array(Image.open(io.BytesIO(encoded)).convert("RGB")))


class TorchRows(torch.utils.data.Dataset):
    """Images of a table of pyarrow."""

    def __init__(self, directory: Path, column: str) -> None:
        import pyarrow.parquet as pq

        self._column = pq.read_table(directory, columns=[column]).column(0).combine_chunks()

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: int) -> torch.Tensor:
        return pixels(self._column[row].as_py())


class Torch(Loader):
    def epochs(self, kind: str) -> Epochs:
        column = SETS[kind][3]
        rows = self.prepared(kind, lambda: TorchRows(self.root / kind / "parquet", column))
        return self.torch_loader(rows, kind, True)


class MosaicMl(Loader):
    def epochs(self, kind: str) -> Epochs:
        from streaming import StreamingDataset

        _, _, size, column = SETS[kind]

        class Images(StreamingDataset):
            def __getitem__(self, row: int) -> Any:
                return pixels(super().__getitem__(row)[column])

        def images() -> Any:
            return Images(local=str(self.root / kind / "mds"), shuffle=True, batch_size=size)

        return self.torch_loader(self.prepared(kind, images), kind, False)


class HuggingFace(Loader):
    def rows(self, kind: str) -> Any:
        import datasets

        datasets.disable_progress_bars()
        name = KINDS[kind]
        column = SETS[name][3]
        files = [str(path) for path in sorted((self.root / name / "parquet").iterdir())]
        data = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(self.root / "hf"))
        data = data.select_columns([column])
        if kind == "jpeg":
            data = data.cast_column(column, datasets.Image())
        return data if kind == "text" else data.with_format("torch")

    def collate(self, kind: str) -> Callable[[list[dict[str, Any]]], Batch]:
        """Makes a batch of rows."""
        column = SETS[KINDS[kind]][3]

        def batch(rows: list[dict[str, Any]]) -> Batch:
            values = [row[column] for row in rows]
            if kind == "text":
                return values
            if kind == "tokens_padded":
                return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
            if kind == "tokens_packed":
                lengths = torch.tensor([0] + [len(value) for value in values])
                return torch.cat(values), lengths.cumsum(0)
            return torch.stack(values)

        return batch

    def epochs(self, kind: str) -> Epochs:
        rows = self.prepared(kind, lambda: self.rows(kind))
        return self.torch_loader(rows, kind, True, collate_fn=self.collate(kind))


class HuggingFaceIterable(HuggingFace):
    def epochs(self, kind: str) -> Epochs:
        def rows() -> Any:
            return self.rows(kind).to_iterable_dataset(num_shards=8 * self.cores).shuffle(seed=0)

        return self.torch_loader(self.prepared(kind, rows), kind, False, collate_fn=self.collate(kind))


LOADERS: dict[str, type[Loader]] = {
    "elasticrun": ElasticRun,
    "pyarrow": PyArrow,
    "unshuffled": Unshuffled,
    "torch": Torch,
    "mosaicml": MosaicMl,
    "hf": HuggingFace,
    "hf_iterable": HuggingFaceIterable,
}


def rows_of(kind: str, batch: Batch) -> int:
    """The number of rows of a batch, which is looked at."""
    if kind == "text":
        assert isinstance(batch[0], str)
        return len(batch)
    if kind == "tokens_packed":
        values, offsets = batch
        assert values.ndim == 1 and len(values) == offsets[-1]
        return len(offsets) - 1
    if kind == "jpeg":
        assert batch.dtype == torch.uint8 and sorted(batch.shape[1:]) == [3, SIDE, SIDE], batch.shape
    elif kind == "tokens_padded":
        assert batch.ndim == 2 and batch.dtype in (torch.int32, torch.int64)
    else:
        assert batch.dtype == torch.float32 and batch.shape[1] == WIDTH
    return len(batch)


def bytes_read() -> int:
    """Bytes that this process has read by system calls, from the page cache or from a disk."""
    counters = Path("/proc/self/io").read_text()
    return next(int(line.split()[1]) for line in counters.splitlines() if line.startswith("rchar:"))


def processor(pid: int | None = None) -> float:
    """Processor time of this process and all its workers, in seconds."""
    if pid is None:
        own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        total = own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
        pid = os.getpid()
    else:
        # utime, stime, and those of children that have ended.
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        total = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    children = [child for task in os.listdir(f"/proc/{pid}/task") for child in children_of(pid, task)]
    return total + sum(processor(int(child)) for child in children)


def children_of(pid: int, task: str) -> list[str]:
    """The processes that a thread has started."""
    return read(f"/proc/{pid}/task/{task}/children").split()


def read(path: str) -> str:
    """A file about a thread, or nothing if that has ended."""
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


class Clock:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        self._used, self._start = processor(), time.perf_counter()

    def wall(self) -> float:
        return time.perf_counter() - self._start

    def figures(self, rows: int) -> dict[str, float]:
        """The figures for so many rows."""
        wall = self.wall()
        return {"rows_per_s": rows / wall, "us_per_row": (processor() - self._used) / rows * 1e6}


def measured(loader: Loader, kind: str, seconds: float) -> dict[str, float]:
    """Reads for so long."""

    def forever() -> Iterator[Batch]:
        epochs = loader.epochs(kind)
        while True:
            yield from epochs()

    batches, rows = forever(), 0
    rows_of(kind, next(batches))
    clock = Clock()
    for batch in batches:
        rows += rows_of(kind, batch)
        if clock.wall() >= seconds:
            break
    figures = clock.figures(rows)
    batches.close()
    return figures


def measured_whole(loader: Loader, kind: str, seconds: float) -> dict[str, float]:
    """Reads whole epochs for at least so long, each from the opening of the data set."""
    clock, rows = Clock(), 0
    while clock.wall() < seconds:
        rows += sum(rows_of(kind, batch) for batch in loader.epochs(kind)())
    return clock.figures(rows)


def main() -> None:
    name, root, cores = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    # Libraries that print do not answer.
    os.dup2(2, 1)
    try:
        loader = LOADERS[name](root, cores)
        failed = None
    except ImportError as error:
        failed = f"{error}"
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if failed is not None:
                answer = {"error": failed}
            elif request.get("whole"):
                assert isinstance(loader, ElasticRun)
                answer = loader.whole(request["kind"])
            else:
                measure = measured_whole if isinstance(loader, ElasticRun) else measured
                answer = measure(loader, request["kind"], request["seconds"])
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
