"""A job on Spark from its first slot to its exit code, whatever its workers run."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _binary, launch
from .._served import Served
from ..errors import ElasticrunError, of_exit_code
from .child import Driver
from .counts import Counts
from .decommission import Decommission
from .delivery import deliver
from .listener import Listener
from .shortage import describe
from .slots import Slots
from .task import Order
from .waiting import Waiting
from .watchdog import Watchdog

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["addresses", "run_job", "say"]

#: The exit code of a job that had too few workers for too long.
_TOO_FEW = 3


def run_job(
    context: SparkContext,
    counts: Counts,
    flags: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str],
    ship_binary: bool = False,
    spares: int = 0,
    served: Served | None = None,
) -> None:
    """Runs a job and waits for its end.

    Args:
        context: whose executors are used.
        counts: workers that are needed, and the most there may be: for so many a slot is asked for.
        flags: options of ``elasticrun run``.
        command: what each worker runs.
        env: variables of the driver, which workers get as well.
        ship_binary: Spark brings the program to the executors.
        spares: slots that are asked for beyond these.
        served: a call that the workers fetch.

    Raises:
        JobError: it failed.
        ElasticrunError: Spark's JVM is gone.
    """
    binary = _binary.find()
    delivered = deliver(context, Path(binary), _version()) if ship_binary else None
    driver = Driver([os.fspath(binary), "run", *flags, "--", *command], env)
    with contextlib.ExitStack() as ends:
        # In this order: what is started last ends first.
        ends.callback(driver.end)
        listening = driver.listening()
        if listening is None:
            raise of_exit_code(driver.wait() or 1, driver.last_words)
        if served is not None:
            served.unlock(bytes.fromhex(listening.call_key))
        ports = tuple(f"{_bracketed(host)}:{listening.port}" for host in addresses(context))
        slots = Slots(context, Order(ports, listening.secret, 0, delivered), counts.max_num_proc + spares, say)
        listener = Listener(context)
        watchdog = Watchdog(context, driver.end)
        decommission = Decommission(context, listener, slots, driver, say)
        describe_now = functools.partial(describe, context, slots, listener)
        waiting = Waiting(counts, lambda: slots.granted(listener.held()), describe_now, say)
        for part in (listener, watchdog, decommission, waiting, slots):
            part.start()
            ends.callback(part.stop)
        code = driver.wait()
        why = describe_now() if code == _TOO_FEW else None
    if watchdog.gone:
        raise ElasticrunError(f"{watchdog.gone}: the job was ended with it")
    if code:
        words = driver.last_words or f"the job ended with {code}"
        raise of_exit_code(code, f"{words}\nSpark: {why}" if why else words)


def addresses(context: SparkContext) -> list[str]:
    """Addresses of this machine that an executor may reach, first the one that Spark itself uses."""
    host = context.getConf().get("spark.driver.host")
    return list(dict.fromkeys([*([host] if host else []), *launch.addresses()]))


def say(line: str) -> None:
    """Says something to a person."""
    print(f"elasticrun: {line}", file=sys.stderr, flush=True)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("elasticrun")
    except metadata.PackageNotFoundError:
        return "unknown"
