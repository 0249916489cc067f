"""``elasticrun.spark.run``: a job whose workers are on Spark's executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _options as options
from .._call import Call
from .._served import Served
from .context import active, setting, warn_of
from .counts import Counts
from .job import addresses, run_job, say

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["DEFAULTS", "own_variables", "run"]

R = TypeVar("R")

#: Runs this package's call with the Python of the executor, which the task names.
_WORKER = ["/bin/sh", "-c", 'exec "$ELASTICRUN_PYTHON" -c "from elasticrun._call import main; main()"']
#: What a bridge sets other than a job from the shell, unless the caller says otherwise: Spark's executors are lost in
#: daily business, and come back quickly.
DEFAULTS: dict[str, object] = {"blacklist_cooldown_range": ("1s", "5s"), "orphan_timeout": "2s"}
#: Variables of this process that its driver needs for itself, and workers do not get.
_OWN = ("XDG_RUNTIME_DIR", "TMPDIR")


def run(
    fn: Callable[..., R],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    *,
    reset_limit: int | None = None,
    cooldown_range: tuple[float | str, float | str] | None = None,
    elastic_timeout: float | str | None = None,
    start_timeout: float | str | None = None,
    env: Mapping[str, str] | None = None,
    verbose: int = 0,
    spark_context: SparkContext | None = None,
    ship_binary: bool = False,
    **settings: object,
) -> list[R]:
    """Runs ``fn(*args, **kwargs)`` in workers on Spark's executors, and waits for the end of the job.

    Args:
        fn: what each worker calls; it calls ``init()`` as a script does. Any function travels.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: workers needed to start. Default: ``spark.dynamicAllocation.initialExecutors`` with dynamic allocation,
            else ``min_num_proc``, else ``spark.default.parallelism``.
        min_num_proc: below it training waits. Default: ``spark.dynamicAllocation.minExecutors``, else ``num_proc``.
        max_num_proc: slots that are asked for. Default: ``spark.dynamicAllocation.maxExecutors``, else ``num_proc``.
        reset_limit: most rounds after the first.
        cooldown_range: first and longest cooldown of a slot whose worker failed, 1 to 5 s by default. A lost executor has none.
        elastic_timeout: longest wait for ``min_num_proc`` workers, in seconds or as ``10m``.
        start_timeout: longest time from the start of a worker to its first round.
        env: variables of the workers, beside those of their executor.
        verbose: 1 or more logs each decision.
        spark_context: whose executors are used; the active one by default.
        ship_binary: Spark brings the program ``elasticrun`` to executors whose package comes without it.
        settings: any other option of ``elasticrun`` that brings no hosts, by its name with underscores.

    Returns:
        What ``fn`` returned, by rank of the last round.

    Raises:
        ElasticrunError: there is no active ``SparkContext``.
        ValueError: the counts contradict each other, or an option brings hosts.
        TypeError: the call cannot be pickled.
        JobError: the job failed: a class for each exit code, see :mod:`elasticrun.errors`.
    """
    context = active(spark_context)
    counts = Counts.of(setting(context), context.defaultParallelism, num_proc, min_num_proc, max_num_proc)
    given: dict[str, object] = {
        **DEFAULTS,
        "np": counts.num_proc,
        "min_np": counts.min_num_proc,
        "max_np": counts.max_num_proc,
        "reset_limit": reset_limit,
        "elastic_timeout": elastic_timeout,
        "start_timeout": start_timeout,
        "verbose": verbose > 0,
        **{options.SYNONYMS.get(name, name): value for name, value in settings.items()},
    }
    if cooldown_range is not None:
        given["blacklist_cooldown_range"] = cooldown_range
    elif given.get("blacklist") == "forever":
        # The bridge's own cooldown would contradict it.
        del given["blacklist_cooldown_range"]
    for name in options.SOURCES:
        if given.get(name):
            raise ValueError(f"{name}: not in elasticrun.spark.run: Spark's executors are the hosts")
    spares = given.get("spares") or 0
    if not isinstance(spares, int) or spares < 0:
        raise ValueError(f"spares {spares!r}: expected a number of slots")
    call = _call(fn, args, kwargs or {})
    warn_of(context, counts, say)
    with Served(call, "") as served:
        environment = {**own_variables(), **(env or {}), **served.variable(addresses(context))}
        flags = [*options.flags(given), *options.named(env or {})]
        run_job(context, counts, flags, _WORKER, environment, ship_binary, spares, served)
    return served.by_rank()


def _call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    from pyspark import cloudpickle

    try:
        pickled = cloudpickle.dumps((fn, tuple(args), dict(kwargs)))
    except Exception as error:
        name = getattr(fn, "__qualname__", fn)
        raise TypeError(
            f"{name} or its arguments cannot be pickled ({error}): make in the function what cannot travel, such as"
            " connections, locks and the SparkContext"
        ) from error
    # What this process has on its path is not on an executor.
    return Call([], None, pickled)


def own_variables() -> dict[str, str]:
    """What a driver needs of this process's variables. All others stay here: workers have those of their executors."""
    return {name: os.environ[name] for name in _OWN if name in os.environ}
