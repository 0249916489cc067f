"""Compares loaders of training data: rows per second on so many cores, and processor time per row.

Usage: loaders.py PACKAGE [--trials N] [--seconds S] [--cores N] [--only KIND] [--sets DIR] [--out FILE]

PACKAGE is a directory with the package elasticrun. Writes the data sets of loaders_sets.py into a temporary directory (0.6 GB), or into
DIR, where they stay for other runs. Each loader is a process of loaders_readers.py, which stays between trials so that no import is
part of them. All processes have the same cores. The loaders of a kind of data take turns, and the first round, which fills the page
cache, does not count. A ratio is the median of those of neighbours, and below 1 where elasticrun is slower. A peer that cannot be run
is named, and null in the report: one JSON object, as the last line or in FILE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import loaders_sets
from loaders_readers import KINDS

READERS = Path(__file__).with_name("loaders_readers.py")
OURS = "elasticrun"
#: The peers of each kind of batch.
PEERS = {
    "jpeg": ("torch", "mosaicml", "hf", "hf_iterable"),
    "tokens_padded": ("pyarrow", "unshuffled", "hf", "hf_iterable"),
    "tokens_packed": ("pyarrow", "unshuffled", "hf", "hf_iterable"),
    "text": ("pyarrow", "unshuffled", "hf", "hf_iterable"),
    "embeddings": ("pyarrow", "unshuffled", "hf", "hf_iterable"),
}
#: What a loader that does not shuffle does is not what the others do, so it is no best peer.
UNSHUFFLED = "unshuffled"
#: Prefixes of the figures.
PREFIXES = {
    OURS: "",
    "pyarrow": "pyarrow_numpy_",
    UNSHUFFLED: "pyarrow_numpy_unshuffled_",
    "torch": "torch_loader_",
    "mosaicml": "mosaicml_",
    "hf": "hf_",
    "hf_iterable": "hf_iterable_",
}

Answer = dict[str, Any]


class Reader:
    """A process that reads by one loader.

    Args:
        name: the loader.
        root: the directory of all sets.
        package: the directory of elasticrun.
        cores: number of cores.
    """

    def __init__(self, name: str, root: Path, package: Path, cores: int) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(package),
            # Else threads that nobody needs here wait busily, and count.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HOME": str(root / "hf"),
            "HF_HUB_OFFLINE": "1",
        }
        self.name = name
        self.log = root / f"{name}.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(READERS), name, str(root), str(cores)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                text=True,
            )

    def ask(self, **request: Any) -> Answer:
        """Sends a request. The answer has an `error` if it failed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            return {"error": f"its process ended: {self.log.read_text().strip()[-300:]}"}
        answer: Answer = json.loads(line)
        return answer

    def stop(self) -> None:
        """Ends the process, which ends its workers."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def readers(names: set[str], root: Path, package: Path, cores: int) -> Iterator[dict[str, Reader]]:
    """A process for each loader."""
    started: dict[str, Reader] = {}
    try:
        for name in sorted(names):
            started[name] = Reader(name, root, package, cores)
        yield started
    finally:
        for reader in started.values():
            reader.stop()


class Trials:
    """The answers of the loaders of a kind of batch, by loader."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.answers: dict[str, list[Answer]] = {name: [] for name in (OURS, *PEERS[kind])}
        #: Why a loader cannot be run.
        self.failed: dict[str, str] = {}
        #: The bytes that elasticrun has read of the files, as parts of those of the column, with all that belongs to
        #: the files and without footers.
        self.read_ratio: float | None = None
        self.data_ratio: float | None = None

    def run(self, processes: dict[str, Reader], seconds: float) -> None:
        """One trial of each loader, in turn."""
        for name, answers in self.answers.items():
            if name in self.failed:
                continue
            answer = processes[name].ask(kind=self.kind, seconds=seconds)
            if "error" in answer:
                self.failed[name] = answer["error"]
            else:
                answers.append(answer)

    def read_whole(self, reader: Reader, directory: Path) -> None:
        """Counts the bytes that are read for an epoch."""
        rows, _, _, column = loaders_sets.SETS[KINDS[self.kind]]
        answer = reader.ask(kind=self.kind, whole=True)
        if "error" in answer:
            self.failed[OURS] = answer["error"]
            return
        if answer["rows"] != rows:
            raise SystemExit(f"{self.kind}: elasticrun read {answer['rows']} of {rows} rows in an epoch")
        there = loaders_sets.column_bytes(directory, column)
        self.read_ratio = round(answer["read_bytes"] / there, 3)
        self.data_ratio = round(answer["data_bytes"] / there, 3)

    def median(self, name: str, key: str) -> float | None:
        """The median of a figure, without the first round."""
        values = [] if name in self.failed else [answer[key] for answer in self.answers[name][1:]]
        return statistics.median(values) if values else None

    def ratio(self, name: str, key: str) -> float | None:
        """How much better elasticrun is: the median of the ratios of neighbours."""
        if name in self.failed or OURS in self.failed:
            return None
        ours = [answer[key] for answer in self.answers[OURS][1:]]
        theirs = [answer[key] for answer in self.answers[name][1:]]
        pairs = list(zip(ours, theirs, strict=True))
        if key == "us_per_row":
            pairs = [(their, our) for our, their in pairs]
        return statistics.median(one / other for one, other in pairs) if pairs else None

    def best_peer(self) -> str | None:
        """The fastest of those that shuffle."""
        speeds = {name: self.median(name, "rows_per_s") for name in PEERS[self.kind] if name != UNSHUFFLED}
        known = {name: speed for name, speed in speeds.items() if speed is not None}
        return max(known, key=lambda name: known[name]) if known else None

    def figures(self, cores: int) -> dict[str, Any]:
        """The figures of the report."""
        report: dict[str, Any] = {}
        for name, prefix in PREFIXES.items():
            if name not in self.answers:
                continue
            speed = self.median(name, "rows_per_s")
            key = f"{prefix}{self.kind}"
            report[f"{key}_rows_per_s"] = speed and round(speed)
            report[f"{key}_rows_per_s_core"] = speed and round(speed / cores)
            report[f"{key}_us_per_row"] = rounded(self.median(name, "us_per_row"))
            if name != OURS:
                report[f"{key}_ratio"] = rounded(self.ratio(name, "rows_per_s"))
                report[f"{key}_cpu_ratio"] = rounded(self.ratio(name, "us_per_row"))
        best = self.best_peer()
        report[f"{self.kind}_best_peer"] = best and PREFIXES[best].removesuffix("_")
        report[f"{self.kind}_best_peer_ratio"] = rounded(best and self.ratio(best, "rows_per_s"))
        report[f"{self.kind}_read_ratio"] = self.read_ratio
        return report

    def print(self, cores: int) -> None:
        """Lines of the table."""
        best = self.best_peer()
        for name in self.answers:
            if name in self.failed:
                print(f"{self.kind:<15}{name:<13}cannot be run: {self.failed[name]}")
                continue
            ratio, of_cpu = self.ratio(name, "rows_per_s"), self.ratio(name, "us_per_row")
            speed, us = self.median(name, "rows_per_s") or 0, self.median(name, "us_per_row") or 0
            ratios = f"{'':>7}{'':>11}" if name == OURS else f"{ratio or 0:>7.2f}{of_cpu or 0:>11.2f}"
            note = f"  read {self.read_ratio}x" if name == OURS else "  best peer" if name == best else ""
            if name == UNSHUFFLED:
                note = "  no shuffle"
            print(f"{self.kind:<15}{name:<13}{ratios}{speed:>12,.0f}{speed / cores:>14,.0f}{us:>14.2f}{note}")


def rounded(value: Any) -> float | None:
    """A figure with three digits behind the point."""
    return value and round(value, 3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("package", type=Path, help="the directory of elasticrun")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="the time of a trial")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--only", choices=PEERS, action="append", help="the kinds of batches, by default all")
    parser.add_argument("--sets", type=Path, help="where the data sets are, or are written")
    parser.add_argument("--out", type=Path, help="where the report goes")
    args = parser.parse_args()
    begun, load = time.monotonic(), os.getloadavg()[0]
    cores = sorted(os.sched_getaffinity(0))[: args.cores]
    os.sched_setaffinity(0, cores)
    kinds = args.only or list(PEERS)

    def tell(progress: str) -> None:
        print(f"loaders: {time.monotonic() - begun:.0f} s: {progress}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        root = (args.sets or Path(name)).absolute()
        sets = {}
        for set_ in dict.fromkeys(KINDS[kind] for kind in kinds):
            tell(f"writing the data set {set_}")
            sets[set_] = loaders_sets.write(set_, root)
        # Otherwise the system would write them to the disk during the measurement.
        os.sync()
        all_trials = [Trials(kind) for kind in kinds]
        needed = {loader for trials in all_trials for loader in trials.answers}
        with readers(needed, root, args.package, len(cores)) as processes:
            for trials in all_trials:
                trials.read_whole(processes[OURS], sets[KINDS[trials.kind]])
            for number in range(args.trials + 1):
                for trials in all_trials:
                    tell(f"round {number} of {args.trials}: {trials.kind}")
                    trials.run(processes, args.seconds)
    report: dict[str, Any] = {
        "bench": "data",
        "loader_cores": len(cores),
        "loader_trials": args.trials,
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }
    loads = f"load of the machine {report['load_before']} before, {report['load_after']} after"
    print(f"{len(cores)} cores, {args.trials} trials of {args.seconds:g} s, {loads}")
    print("ratio: elasticrun / this, rows/s; CPU ratio: this / elasticrun, processor time a row")
    print(
        f"{'batches':<15}{'loader':<13}{'ratio':>7}{'CPU ratio':>11}{'rows/s':>12}{'rows/s a core':>14}{'us CPU a row':>14}"
    )
    for trials in all_trials:
        trials.print(len(cores))
        report |= trials.figures(len(cores))
    failed = [f"{trials.kind}: {trials.failed[OURS]}" for trials in all_trials if OURS in trials.failed]
    if failed:
        raise SystemExit(f"loaders: elasticrun failed: {'; '.join(failed)}")
    if args.out is None:
        print(json.dumps(report))
    else:
        args.out.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
