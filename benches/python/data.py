"""Compares the reader with its peers: processor time per row, rows per second, memory.

Usage: data.py BENCH_DATA BENCH_REPARTITION [--rows N] [--trials N] [--baseline BENCH_DATA] [--packages DIR DIR]
[--petastorm-python PYTHON [--torch-site DIR]] [--with FILE]

Runs BENCH_DATA and the peers in alternation on data sets of eight kinds: lists or bytes of 128 float32, or rows of any size
(lists of 64 to 512 int32, and bytes as of images), snappy or zstd. pyarrow writes them with its defaults, except for row groups
of 4,096 rows (of images: 512) and no dictionary, which such values do not need. With --baseline, another build of BENCH_DATA
runs beside this one. With --packages, two builds of the Python package do: that of this tree, and the other one. The column "read" are the bytes that a program reads from files in an epoch, in proportion to those of the
column. The last line is one JSON object, which has the figures of FILE as well.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WIDTH, GROUP, FILES = 128, 4096, 4
RAGGED = ("tokens", "images")
PEERS = Path(__file__).with_name("data_peers.py")
#: Readers through the Python package: of this tree, and of another build.
PACKAGES = ("package", "pkg-before")
#: Readers, and the prefixes of their figures.
PREFIXES = {
    "ours": "",
    "before": "before_",
    "package": "package_",
    "pkg-before": "package_before_",
    "pyarrow": "pyarrow_numpy_",
    "values": "pyarrow_values_",
    "petastorm": "petastorm_",
    "loader": "petastorm_torch_",
    "batched": "petastorm_torch_batched_",
}


def write_sets(root: Path, rows: int) -> dict[tuple[str, str], Path]:
    """Writes each kind of set. All hold the same values."""
    random = np.random.default_rng(0)
    sets: dict[tuple[str, str], Path] = {}
    for number in range(FILES):
        values = random.standard_normal((rows // FILES, WIDTH), dtype=np.float32)
        offsets = np.arange(0, values.size + 1, WIDTH, dtype=np.int32)
        columns = {
            "list": pa.ListArray.from_arrays(offsets, pa.array(values.ravel())),
            "binary": pa.array([row.tobytes() for row in values], pa.binary()),
            **ragged(random, rows // FILES),
        }
        for kind, column in columns.items():
            for codec in ("snappy", "zstd"):
                directory = sets.setdefault((kind, codec), root / f"{kind}-{codec}")
                directory.mkdir(exist_ok=True)
                pq.write_table(
                    pa.table({"x": column}),
                    directory / f"part-{number}.parquet",
                    compression=codec,
                    row_group_size=512 if kind == "images" else GROUP,
                    use_dictionary=False,
                )
    return sets


def ragged(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    """Rows of any size: token numbers, most of them small, and bytes that compression does not shrink."""
    lengths = random.integers(64, 513, rows // 8)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = np.minimum(random.zipf(1.2, offsets[-1]), 50_000).astype(np.int32)
    images = [random.bytes(size) for size in random.integers(2_000, 20_001, rows // 40)]
    return {"tokens": pa.ListArray.from_arrays(offsets, pa.array(tokens)), "images": pa.array(images, pa.binary())}


def column_bytes(directory: Path) -> int:
    """Bytes of the column in the files."""
    groups = (
        metadata.row_group(number)
        for path in directory.iterdir()
        for metadata in [pq.read_metadata(path)]
        for number in range(metadata.num_row_groups)
    )
    return sum(group.column(0).total_compressed_size for group in groups)


def run(command: list[str]) -> dict | None:
    """The last line of a command's output, or nothing if it failed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def readers(args: argparse.Namespace, kind: str, directory: Path) -> dict[str, list[str]]:
    """The command of each reader of a set, ours first."""
    options = ["--ragged"] if kind in RAGGED else []
    commands = {
        "ours": [args.bench_data, str(directory), *options],
        "pyarrow": [sys.executable, str(PEERS), "pyarrow", kind, str(directory)],
    }
    if args.baseline:
        commands["before"] = [args.baseline, str(directory), *options]
    for name, package in zip(PACKAGES, args.packages or (), strict=False):
        reader = [sys.executable, str(PEERS), "elasticrun", kind, str(directory)]
        commands[name] = ["env", f"PYTHONPATH={package}", *reader]
    if kind == "binary":
        commands["values"] = [sys.executable, str(PEERS), "values", kind, str(directory)]
    if args.petastorm_python and kind not in RAGGED:
        commands["petastorm"] = [args.petastorm_python, str(PEERS), "petastorm", kind, str(directory)]
    if args.petastorm_python and args.torch_site and kind == "list":
        os.environ["TORCH_SITE"] = args.torch_site
        for loader in ("loader", "batched"):
            commands[loader] = [args.petastorm_python, str(PEERS), loader, kind, str(directory)]
    return commands


def median(trials: list[dict | None], key: str) -> float | None:
    values = [trial[key] for trial in trials if trial is not None and key in trial]
    return statistics.median(values) if values else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bench_data")
    parser.add_argument("bench_repartition")
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--baseline", help="another build of BENCH_DATA")
    parser.add_argument(
        "--packages", nargs=2, help="directories with the Python package: of this build, of another one"
    )
    parser.add_argument("--petastorm-python")
    parser.add_argument("--torch-site", help="where petastorm's loaders find torch")
    parser.add_argument("--with", type=Path, dest="others", help="the report of loaders.py")
    args = parser.parse_args()
    report: dict = {"bench": "data", "rows": args.rows}
    if args.others:
        report = json.loads(args.others.read_text()) | report
    with tempfile.TemporaryDirectory() as root:
        sets = write_sets(Path(root), args.rows)
        # Otherwise the system would write them to the disk during the measurement.
        os.sync()
        print(f"{'set':<16}{'reader':<12}{'us of CPU a row':>16}{'rows/s':>12}{'RSS MiB':>9}{'ratio':>7}{'read':>7}")
        trials: dict[tuple[str, str], dict[str, list]] = {key: defaultdict(list) for key in sets}
        # Each round covers all sets, so a slowdown of some seconds affects one trial of each and no median. The first round
        # fills the page cache.
        for number in range(args.trials + 1):
            print(f"round {number} of {args.trials}", file=sys.stderr)
            for (kind, codec), directory in sets.items():
                for name, command in readers(args, kind, directory).items():
                    if name in ("ours", "before", *PACKAGES, "pyarrow", "values") or number < 3:
                        trials[kind, codec][name].append(run(command))
        for (kind, codec), measured_of in trials.items():
            base = median(measured_of["ours"][1:], "us_per_row")
            there = column_bytes(sets[kind, codec])
            for name, prefix in PREFIXES.items():
                measured = measured_of.get(name, [])[1:]
                us = median(measured, "us_per_row")
                suffix = "" if codec == "snappy" else f"_{codec}"
                report[f"{prefix}{kind}{suffix}_us_per_row"] = us and round(us, 3)
                report[f"{prefix}{kind}{suffix}_rows_per_s"] = round(median(measured, "rows_per_s") or 0) or None
                report[f"{prefix}{kind}{suffix}_rss_mib"] = median(measured, "rss_mib")
                read = median(measured, "read_bytes")
                ratio = None if read is None else round(read / there, 3)
                if ratio is not None:
                    report[f"{prefix}{kind}{suffix}_read_ratio"] = ratio
                if us is None or base is None:
                    continue
                # A build is compared with the other one that is measured in the same way.
                same = median(measured_of["package"][1:], "us_per_row") if name == "pkg-before" else base
                rows_per_s, rss = median(measured, "rows_per_s"), median(measured, "rss_mib")
                print(
                    f"{kind + ' ' + codec:<16}{name:<12}{us:>16.3f}{rows_per_s:>12,.0f}{rss:>9.0f}{(same or base) / us:>7.2f}{ratio or '':>7}"
                )
    # A million row groups over 10,000 workers, of which one in 200 leaves.
    plan = run([args.bench_repartition, "--groups", "1000000", "--workers", "10000"])
    for key in ("repartition_ms", "moved_rows", "bound_rows"):
        report[key] = plan and plan[key]
    print(f"repartition: {report['repartition_ms']} ms, {report['moved_rows']} rows, at least {report['bound_rows']}")
    print(json.dumps(report))


main()
