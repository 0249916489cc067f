"""What workers of tests do. Executors find this module on their path."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """A step that one worker has committed.

    Attributes:
        at: when, on the monotonic clock of this machine, in seconds.
        pid: of the worker.
        host: as the job names it: machine, slot and attempt.
        rank: in that round.
        size: of that round.
        round: its number.
        step: which.
        begun: how many steps its process has begun until then, those that were cut off among them.
    """

    at: float
    pid: int
    host: str
    rank: int
    size: int
    round: int
    step: int
    begun: int

    @property
    def machine(self) -> str:
        """The executor's host."""
        return self.host.split("/")[0]

    @property
    def slot(self) -> str:
        """The slot, without the attempt."""
        return self.host.split("/")[1].split(".")[0]


@dataclass(frozen=True)
class End:
    """The record that a worker writes at its end."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    machine: str
    step: int


def train(folder: str, last: int | None = None, before: Callable[[Any], None] | None = None) -> End:
    """Counts, one commit a step of about 10 ms, with a line for each in ``folder/trace``.

    It ends after ``last`` steps, or once there is ``folder/finish``: on all ranks at the same step.
    """
    import elasticrun as e

    e.init()
    state = e.ObjectState(step=0)
    host = os.environ["ELASTICRUN_HOST"]
    begun = 0
    with Path(folder, "trace").open("a", buffering=1) as trace:

        def tell() -> None:
            place = f"{e.rank()} {e.size()} {e.world().round} {state.step} {begun}"
            trace.write(f"{time.monotonic()} {os.getpid()} {host} {place}\n")

        @e.elastic.run
        def loop(state: Any) -> End:
            nonlocal begun
            while True:
                done = (last is not None and state.step >= last) or Path(folder, "finish").exists()
                begun += 1
                if e.allreduce(float(done), e.Max) > 0:
                    machine = host.split("/")[0]
                    return End(e.rank(), e.size(), e.local_rank(), e.local_size(), machine, state.step)
                if before is not None:
                    before(state)
                state.step += 1
                try:
                    state.commit()
                except e.HostsUpdated:
                    # It is committed, and the round is left.
                    tell()
                    raise
                tell()
                time.sleep(0.01)

        end: End = loop(state)
        return end


def read(folder: Path) -> list[Step]:
    """All steps so far."""
    try:
        lines = (folder / "trace").read_text().splitlines()
    except FileNotFoundError:
        return []
    kinds = (float, int, str, int, int, int, int, int)
    # The last line may be half written.
    whole = [words for words in map(str.split, lines) if len(words) == len(kinds)]
    return [Step(*(kind(word) for kind, word in zip(kinds, words, strict=True))) for words in whole]


def returns_a_lock(folder: str) -> object:
    """What cannot travel back."""
    return threading.Lock()


def closes_over(folder: str) -> Callable[[], str]:
    """What no pickle by reference holds."""
    return lambda: folder


def fails(folder: str) -> None:
    """Fails on each rank."""
    raise KeyError("mine")


def reads(data: Any) -> list[int]:
    """The rows of an epoch that this worker is given."""
    import elasticrun as e

    e.init()
    state = e.ObjectState(rows=[], data=data.open(batch_size=16))

    @e.elastic.run
    def loop(state: Any) -> list[int]:
        for batch in state.data:
            state.rows += [int(row) for row in batch["id"]]
            state.commit()
        return list(state.rows)

    rows: list[int] = loop(state)
    return rows
