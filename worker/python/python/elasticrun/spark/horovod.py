"""``run_elastic`` with Horovod's arguments, so that a program migrates by changing its import."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .launch import run

__all__ = ["run_elastic"]

R = TypeVar("R")


def run_elastic(
    fn: Callable[..., R],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    start_timeout: float | None = None,
    elastic_timeout: float | None = None,
    reset_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    stdout: object = None,
    stderr: object = None,
    verbose: int = 1,
    nics: Sequence[str] | str | None = None,
    prefix_output_with_timestamp: bool = False,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[R]:
    """Like :func:`elasticrun.spark.run`, with the names and the order of Horovod's arguments.

    Args:
        fn: the function that each worker calls.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: workers needed to start.
        min_num_proc: minimum workers; training pauses below it.
        max_num_proc: number of slots to request. Default: ``num_proc`` (in Horovod: unlimited).
        start_timeout: seconds until a worker must be in its first round. Default: ``HOROVOD_SPARK_START_TIMEOUT``.
        elastic_timeout: seconds to wait for ``min_num_proc`` workers. Default: ``HOROVOD_ELASTIC_TIMEOUT``.
        reset_limit: maximum number of rounds after the first.
        env: environment variables of the workers.
        stdout: must be None or ``sys.stdout``, to which the output of workers goes.
        stderr: must be None or ``sys.stderr``.
        verbose: 2 logs each decision.
        nics: network interfaces for data between workers.
        prefix_output_with_timestamp: whether each line of output begins with the time.
        min_np: old name of ``min_num_proc``.
        max_np: old name of ``max_num_proc``.

    Raises:
        ValueError: another ``stdout`` or ``stderr``. Use ``output_filename`` of :func:`elasticrun.spark.run` for files.
    """
    for name, value, allowed in (("stdout", stdout, sys.stdout), ("stderr", stderr, sys.stderr)):
        if value is not None and value is not allowed:
            raise ValueError(f"{name}: expected None or sys.{name}; elasticrun.spark.run has output_filename for files")
    return run(
        fn,
        args,
        kwargs,
        num_proc,
        min_np if min_num_proc is None else min_num_proc,
        max_np if max_num_proc is None else max_num_proc,
        start_timeout=_seconds(start_timeout, "HOROVOD_SPARK_START_TIMEOUT"),
        elastic_timeout=_seconds(elastic_timeout, "HOROVOD_ELASTIC_TIMEOUT"),
        reset_limit=reset_limit,
        env=env,
        verbose=int(verbose > 1),
        network_interface=nics if isinstance(nics, str) or nics is None else ",".join(nics),
        prefix_output_with_timestamp=prefix_output_with_timestamp,
    )


def _seconds(given: float | None, variable: str) -> float | str | None:
    return given if given is not None else os.environ.get(variable)
