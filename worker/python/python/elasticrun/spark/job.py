"""Runs a job on Spark, from its first slot to its exit code."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _binary, _local_addresses
from .._function_server import FunctionServer
from ..errors import ElasticrunError, from_exit_code
from .binary_distribution import distribute
from .capacity_diagnostics import CapacityReporter, describe
from .counts import Counts
from .decommission import Decommission
from .driver_process import DriverProcess
from .listener import Listener
from .slots import Slots
from .task import TaskSpec
from .watchdog import Watchdog

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["addresses", "report", "run_job"]

#: The exit code of a job with too few workers for longer than the elastic timeout.
_TOO_FEW = 3


def run_job(
    context: SparkContext,
    counts: Counts,
    flags: Sequence[str],
    command: Sequence[str],
    env: Mapping[str, str],
    ship_binary: bool = False,
    spares: int = 0,
    server: FunctionServer | None = None,
) -> None:
    """Runs a job and waits until it has ended.

    Args:
        context: context whose executors are used.
        counts: numbers of workers. One slot is requested for each of the maximum.
        flags: options of ``elasticrun run``.
        command: command of each worker.
        env: environment of the driver, which workers inherit.
        ship_binary: whether Spark sends the program to the executors.
        spares: number of additional slots to request.
        server: server of a call that the workers fetch.

    Raises:
        JobError: the job failed.
        ElasticrunError: Spark's JVM is gone, or no executor can run the tasks.
    """
    binary = _binary.find()
    distributed = distribute(context, Path(binary), _version()) if ship_binary else None
    driver = DriverProcess([os.fspath(binary), "run", *flags, "--", *command], env)
    with contextlib.ExitStack() as cleanup:
        # The parts are stopped in the reverse order of their start.
        cleanup.callback(driver.end)
        endpoint = driver.listening()
        if endpoint is None:
            raise from_exit_code(driver.wait() or 1, driver.stderr_tail)
        if server is not None:
            server.unlock(endpoint.call_identity)
        ports = tuple(f"{_bracketed(host)}:{endpoint.port}" for host in addresses(context))
        spec = TaskSpec(ports, endpoint.token, 0, distributed)
        listener = Listener(context)
        tasks = functools.partial(listener.held, math.inf)
        slots = Slots(context, spec, counts.max_num_proc + spares, report, driver.end, listener.jobs, tasks)
        watchdog = Watchdog(context, driver.end)
        decommission = Decommission(context, listener, slots, driver, report)
        describe_now = functools.partial(describe, context, slots, listener)
        reporter = CapacityReporter(counts, lambda: slots.granted(listener.held()), describe_now, report)
        for part in (listener, watchdog, decommission, reporter, slots):
            part.start()
            cleanup.callback(part.stop)
        code = driver.wait()
        why = describe_now() if code == _TOO_FEW else None
    if watchdog.gone:
        raise ElasticrunError(f"{watchdog.gone}: the job was ended with it")
    if slots.unusable:
        raise ElasticrunError(f"no slot of Spark can be used: {slots.unusable}")
    if code:
        words = driver.stderr_tail or f"the job ended with {code}"
        raise from_exit_code(code, f"{words}\nSpark: {why}" if why else words)


def addresses(context: SparkContext) -> list[str]:
    """Addresses of this machine that an executor may reach. The one that Spark uses comes first."""
    host = context.getConf().get("spark.driver.host")
    return list(dict.fromkeys([*([host] if host else []), *_local_addresses.addresses()]))


def report(line: str) -> None:
    """Prints a line for the user."""
    print(f"elasticrun: {line}", file=sys.stderr, flush=True)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("elasticrun")
    except metadata.PackageNotFoundError:
        return "unknown"
