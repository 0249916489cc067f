"""``elasticrun.spark.run``: runs a job whose workers run on Spark executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _options as options
from .._call_pickle import call_by_value
from .._function_server import FunctionServer
from .context import active, setting, warn_of_settings
from .counts import Counts
from .job import addresses, report, run_job

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["DEFAULTS", "driver_variables", "run"]

R = TypeVar("R")

#: Runs the function worker with the Python interpreter of the executor, which the task puts into the variable.
_WORKER = ["/bin/sh", "-c", 'exec "$ELASTICRUN_PYTHON" -c "from elasticrun._function_worker import main; main()"']
#: Defaults that differ from those of a job from the shell: the loss of a Spark executor is routine, and a replacement comes
#: quickly.
DEFAULTS: dict[str, object] = {"blacklist_cooldown_range": ("1s", "5s"), "orphan_timeout": "2s"}
#: Variables of this process that its driver needs.
_DRIVER_VARIABLES = ("XDG_RUNTIME_DIR", "TMPDIR")


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
    _on_progress: Callable[[Any], object] | None = None,
    **settings: object,
) -> list[R]:
    """Runs ``fn(*args, **kwargs)`` in workers on Spark executors, and waits until the job has ended.

    Args:
        fn: the function that each worker calls. It calls ``init()`` as a script does. Any function can be sent, and any
            result that Spark's cloudpickle can pickle comes back.
        args: its arguments.
        kwargs: its keyword arguments.
        num_proc: workers to start with. After ``elastic_timeout``, ``min_num_proc`` suffices. Default:
            ``spark.dynamicAllocation.initialExecutors`` with dynamic allocation, else ``min_num_proc``, else
            ``spark.default.parallelism``.
        min_num_proc: minimum workers; training pauses below it. Default: ``spark.dynamicAllocation.minExecutors``, else
            ``num_proc``.
        max_num_proc: number of slots to request. Default: ``spark.dynamicAllocation.maxExecutors``, else ``num_proc``.
        reset_limit: maximum number of rounds after the first. Default: no limit.
        cooldown_range: first and maximum cooldown of a slot whose worker failed. Default: 1 to 5 s. A lost executor has none.
        elastic_timeout: maximum wait for ``min_num_proc`` workers, in seconds or as ``10m``.
        start_timeout: maximum time from the start of a worker to its first round.
        env: environment variables of the workers, in addition to those of their executor.
        verbose: 1 or more logs each decision.
        spark_context: context whose executors are used. Default: the active one.
        ship_binary: whether Spark sends the program ``elasticrun`` to executors, whose package may lack it.
        settings: any other option of ``elasticrun`` except sources of hosts, by its name with underscores.

    Returns:
        The return values of ``fn``, by rank of the last round.

    Raises:
        ElasticrunError: there is no active ``SparkContext``, or no executor can run the tasks.
        ValueError: the numbers of workers contradict each other, or an option is a source of hosts.
        TypeError: the call cannot be pickled, ``fn`` is no function, or a keyword is no option of ``elasticrun``.
        JobError: the job failed. Each exit code has its class, see :mod:`elasticrun.errors`. It has the results that came, and
            the exception of a worker as its cause.
        MissingResultsError: the job succeeded, but a worker returned no result.
    """
    context = active(spark_context)
    counts = Counts.from_settings(setting(context), context.defaultParallelism, num_proc, min_num_proc, max_num_proc)
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
        # The default cooldown would contradict this.
        del given["blacklist_cooldown_range"]
    for name in options.SOURCES:
        if given.get(name):
            raise ValueError(f"{name}: not in elasticrun.spark.run: Spark's executors are the hosts")
    spares = given.get("spares") or 0
    if not isinstance(spares, int) or spares < 0:
        raise ValueError(f"spares {spares!r}: expected a number of slots")
    # The search path of this process does not exist on executors.
    call = call_by_value("pyspark.cloudpickle", fn, args, kwargs or {}, [])
    warn_of_settings(context, counts, report)
    with options.keywords(settings), FunctionServer(call, "", _on_progress) as server:
        environment = {**driver_variables(), **(env or {}), **server.environment(addresses(context))}
        flags = [*options.flags(given), *options.named(env or {})]
        run_job(context, counts, flags, _WORKER, environment, ship_binary, spares, server)
    return server.results_by_rank()


def driver_variables() -> dict[str, str]:
    """Variables of this process for its driver. All others are left out, since workers use the environment of their executors."""
    return {name: os.environ[name] for name in _DRIVER_VARIABLES if name in os.environ}
