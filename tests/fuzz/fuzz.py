#!/usr/bin/env -S python3 -B
"""Feeds random input to the parsers: `make fuzz`.

Each target is built by the stable compiler with the coverage flags of libFuzzer, and then runs for a time. It starts with
its seeds and with the inputs of earlier runs, which are in `corpus`. A line says how far it is. An input that breaks a
property is written to `artifacts`. The exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Each target with the feature that it needs, and what it reads.
TARGETS = {
    "config": ("driver", "configuration files, command lines, variables"),
    "etcd": (None, "answers of etcd's JSON gateway"),
    "footers": ("data", "footers of Parquet files"),
    "frames": (None, "messages of driver, agents and workers"),
    "host_lists": (None, "--hosts, host files, Slurm's lists, snapshots"),
    "journal_values": ("driver", "values of the journal of a driver"),
    "manifests": ("driver", "manifests of durable commits"),
    "pages": ("data", "pages of Parquet columns"),
    "plugin_answers": (None, "answers of plugins, output of scripts, --discovery"),
    "shards": (None, "layouts of a sharded state, bodies of shards"),
    "thrift": ("data", "structures of Thrift in Parquet files"),
    "tokens": (None, "join tokens"),
}
#: Only flags that the stable compiler has.
FLAGS = (
    "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table --cfg fuzzing"
)
#: Seconds between two progress lines where standard output is no terminal.
PAUSE = 15


def target_directory() -> Path:
    """Where the instrumented crates are, outside of the clone."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ELASTICRUN_FUZZ_TARGET") or Path(cache) / "elasticrun" / "target-fuzz")


def build(name: str, host: str) -> Path:
    """Builds a target and returns its program."""
    feature, _ = TARGETS[name]
    command = ["cargo", "build", "--quiet", "--release", "--target", host, "--bin", name]
    command += ["--features", feature] if feature else []
    environment = os.environ | {"RUSTFLAGS": FLAGS, "CARGO_TARGET_DIR": str(target_directory())}
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    return target_directory() / host / "release" / name


class Progress:
    """The line that says how far a target is: rewritten on a terminal, else repeated every `PAUSE` seconds.

    It follows libFuzzer's own lines, which become rare once new inputs show nothing new.
    """

    def __init__(self, label: str, seconds: int):
        self.label, self.seconds = label, seconds
        self.start = self.shown = time.monotonic()
        self.inputs = self.edges = 0

    def read(self, line: str) -> None:
        """Takes the numbers from a line of libFuzzer, such as `#2048 pulse  cov: 310 ft: 702 ...`."""
        if found := re.match(r"#(\d+)\s+\w+\s+cov: (\d+)", line):
            self.inputs, self.edges = map(int, found.groups())
            self.show()

    def show(self) -> None:
        now = time.monotonic()
        terminal = sys.stdout.isatty()
        if now - self.shown >= (1 if terminal else PAUSE):
            self.shown = now
            print(self.text(), end="\r" if terminal else "\n", flush=True)

    def text(self) -> str:
        past = min(time.monotonic() - self.start, self.seconds)
        return f"{self.label}: {past:.0f} s of {self.seconds} s, {self.inputs:,} inputs, {self.edges:,} edges"


def run(name: str, program: Path, seconds: int, label: str) -> bool:
    """Runs a target. Returns whether all inputs kept the properties."""
    corpus = HERE / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    (HERE / "artifacts").mkdir(exist_ok=True)
    command = [str(program), f"-max_total_time={seconds}", "-timeout=10", f"-artifact_prefix=artifacts/{name}-"]
    command += [str(corpus), f"seeds/{name}"]
    known = set((HERE / "artifacts").iterdir())
    progress, last = Progress(label, seconds), deque[str](maxlen=60)
    with subprocess.Popen(
        command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as fuzzer:
        assert fuzzer.stderr
        for line in fuzzer.stderr:
            last.append(line)
            progress.read(line)
    print(progress.text(), flush=True)
    if fuzzer.returncode == 0:
        return True
    print("".join(last))
    if new := sorted(set((HERE / "artifacts").iterdir()) - known):
        print(f"{name}: an input breaks a property. To repeat it: {program} {new[-1]}")
    else:
        print(f"{name} ended with {fuzzer.returncode}, without an input that it had written")
    return False


def seconds(word: str) -> int:
    """A number of seconds; libFuzzer takes 0 as no limit."""
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word}: expected a whole number of seconds, 1 or more")
    return int(word)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=seconds, default=60, help="how long each target runs; 1 or more")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"targets, of {', '.join(TARGETS)}; all by default")
    options = parser.parse_args()
    names = options.names or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if not any(map(shutil.which, filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")))):
        sys.exit("make fuzz needs a C++ compiler for libFuzzer, such as the package g++")
    # The versions are those of the workspace.
    shutil.copy(HERE.parents[1] / "Cargo.lock", HERE / "Cargo.lock")
    if not shutil.which("rustc"):
        sys.exit("make fuzz needs rustc and cargo")
    version = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    host = version.split("host: ")[1].split()[0]
    total = len(names) * options.seconds
    print(f"{len(names)} targets, {options.seconds} s each: {total / 60:.1f} minutes, and the builds", flush=True)
    failed = []
    for number, name in enumerate(names, 1):
        print(f"{name} ({TARGETS[name][1]}): building; the first build takes minutes", flush=True)
        program = build(name, host)
        if not run(name, program, options.seconds, f"{name} ({number} of {len(names)})"):
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
