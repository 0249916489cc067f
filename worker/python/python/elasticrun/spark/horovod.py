"""``run_elastic`` with the keywords of Horovod's, so that a program moves with its import changed."""

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
    """As :func:`elasticrun.spark.run`, in Horovod's order and with its names.

    Args:
        fn: what each worker calls.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: workers needed to start.
        min_num_proc: below it training waits.
        max_num_proc: slots that are asked for. Horovod's may be without bounds; here it is ``num_proc`` then.
        start_timeout: seconds until a worker must be in its first round; else ``HOROVOD_SPARK_START_TIMEOUT``.
        elastic_timeout: seconds to wait for ``min_num_proc`` workers; else ``HOROVOD_ELASTIC_TIMEOUT``.
        reset_limit: most rounds after the first.
        env: variables of the workers.
        stdout: must be None or ``sys.stdout``: output of workers goes to this process's.
        stderr: must be None or ``sys.stderr``.
        verbose: 2 logs each decision.
        nics: interfaces for data between workers.
        prefix_output_with_timestamp: puts the time before each line of output.
        min_np: an older name of ``min_num_proc``.
        max_np: an older name of ``max_num_proc``.

    Raises:
        ValueError: ``stdout`` or ``stderr`` is something else; use ``output_filename`` of :func:`elasticrun.spark.run`.
    """
    for name, value, ours in (("stdout", stdout, sys.stdout), ("stderr", stderr, sys.stderr)):
        if value is not None and value is not ours:
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
