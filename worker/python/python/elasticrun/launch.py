"""``elasticrun.run``: starts a job from Python whose workers all call one function."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from . import _binary
from . import _options as options
from ._call_pickle import call_of_this_program
from ._function_server import FunctionServer
from ._local_addresses import addresses
from ._rpc_identity import Identity
from ._stderr_relay import StderrRelay
from .errors import ElasticrunError, from_exit_code

__all__ = ["run"]

R = TypeVar("R")

#: Seconds for an interrupted job to end by itself.
_GRACE = 5.0


def run(
    fn: Callable[..., R] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int | None = 1,
    min_np: int | None = None,
    max_np: int | None = None,
    *,
    hosts: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    host_discovery_script: str | os.PathLike[str] | None = None,
    slots_per_host: int | None = None,
    reset_limit: int | None = None,
    elastic_timeout: float | str | None = None,
    start_timeout: float | str | None = None,
    output_filename: str | os.PathLike[str] | None = None,
    executable: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    verbose: int | None = 0,
    func: Callable[..., R] | None = None,
    **settings: object,
) -> list[R]:
    """Runs ``fn(*args, **kwargs)`` in all workers of a job, and waits until the job has ended.

    ``fn`` calls ``init()`` as a script does. It is pickled, so it must be a function of a module. Workers import the main
    module again for a function of it, so guard the start of the job with ``if __name__ == "__main__":``. With cloudpickle
    installed, any function can be sent, and any result that cloudpickle can pickle comes back.

    Args:
        fn: the function that each worker calls.
        args: its arguments.
        kwargs: its keyword arguments.
        np: workers needed to start. None: determined by the hosts.
        min_np: minimum workers; training pauses below it.
        max_np: maximum workers.
        hosts: hosts and their slots, such as ``a:4,b:4``. Default without any source of hosts: ``localhost``.
        hostfile: file with lines ``host slots=n``.
        host_discovery_script: executable that prints the current hosts.
        slots_per_host: slots per host when the source reports none.
        reset_limit: maximum number of rounds after the first.
        elastic_timeout: maximum wait for ``min_np`` workers, in seconds or as ``10m``.
        start_timeout: maximum time from the start of a worker to its first round.
        output_filename: directory for the output of each rank.
        executable: Python interpreter of the workers. Default: this one.
        env: environment of the job. Default: that of this process. Workers on other hosts receive the variables that differ
            from this process, and those that configure training (``PATH``, ``PYTHON*``, ``NCCL_*``...).
        verbose: 1 or more logs each decision.
        func: Horovod's name of ``fn``.
        settings: any other option of ``elasticrun`` by its name with underscores. A switch takes True, a range a pair, a
            repeatable option a list. Horovod's names (``num_proc``, ``slots``, ``cooldown_range``, ``use_gloo``, ...) are
            accepted and take precedence over the arguments above.

    Returns:
        The return values of ``fn``, by rank of the last round.

    Raises:
        TypeError: the call cannot be pickled, ``fn`` is no function, or a keyword is no option of ``elasticrun``.
        ValueError: ``spark`` is given. Use :func:`elasticrun.spark.run`.
        JobError: the job failed. Each exit code has its class, see :mod:`elasticrun.errors`. It has the results that came, and
            the exception of a worker as its cause.
        MissingResultsError: the job succeeded, but a worker returned no result.
    """
    called = func if fn is None else fn
    if called is None or (fn is not None and func is not None):
        raise TypeError("run() takes one function to call: fn, or func as in Horovod")
    call = call_of_this_program(called, args, kwargs or {})
    given: dict[str, object] = {
        "np": np,
        "min_np": min_np,
        "max_np": max_np,
        "hosts": hosts,
        "hostfile": hostfile,
        "host_discovery_script": host_discovery_script,
        "slots_per_host": slots_per_host,
        "reset_limit": reset_limit,
        "elastic_timeout": elastic_timeout,
        "start_timeout": start_timeout,
        "output_filename": output_filename,
        "verbose": (verbose or 0) > 0,
        **{options.SYNONYMS.get(name, name): value for name, value in settings.items()},
    }
    environment = dict(os.environ if env is None else env)
    if "spark" in options.sources(given, environment):
        raise ValueError("spark: not in elasticrun.run: elasticrun.spark.run calls functions on Spark's executors")
    python = os.fspath(executable or sys.executable)
    command = [os.fspath(_binary.find()), "run", *options.flags(given)]
    command += options.named(name for name in environment if environment[name] != os.environ.get(name))
    worker = ["--", python, "-c", "from elasticrun._function_worker import main; main()"]
    # If this machine is the only host, listening on loopback suffices and is safer.
    local = _is_local(given, environment)
    with options.keywords(settings), FunctionServer(call, "127.0.0.1" if local else "") as server:
        variable = server.environment(["127.0.0.1"] if local else addresses())
        _wait(command, worker, {**environment, **variable}, server)
    return server.results_by_rank()


def _is_local(settings: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Whether these settings name no other host than this machine. A source of hosts may name others, so it counts as remote."""
    found = options.sources(settings, environment)
    hosts = str(found.pop("hosts", "localhost")).split(",")
    if found:
        return False
    names = [host.strip().rpartition(":")[0] or host.strip() for host in hosts]
    return all(name in ("localhost", "127.0.0.1") for name in names)


def _wait(command: list[str], worker: list[str], env: dict[str, str], server: FunctionServer) -> None:
    """Runs the job to its end.

    Raises:
        JobError: the job failed.
        ElasticrunError: this process cannot serve the call.
    """
    read, write = os.pipe()
    unserved: list[Exception] = []
    with open(read, "rb") as identity_pipe:
        try:
            words = [*command, "--call-fd", str(write), *worker]
            job = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, pass_fds=[write])
        finally:
            os.close(write)
        unlocks = (os.dup(identity_pipe.fileno()), server, job, unserved)
        threading.Thread(target=_unlock, args=unlocks, daemon=True).start()
    tail = finish(job)
    if unserved:
        raise ElasticrunError(f"this Python cannot serve the call to the workers: {unserved[0]}") from unserved[0]
    if job.returncode != 0:
        raise from_exit_code(job.returncode, tail)


def finish(job: subprocess.Popen[bytes]) -> str:
    """Waits until ``job`` has ended, and forwards its standard error, which is a pipe.

    Returns:
        Its last lines of standard error, else its exit code as text.
    """
    assert job.stderr is not None, "it is a pipe"
    stderr = StderrRelay(job.stderr)
    try:
        job.wait()
    except BaseException:
        # The job usually receives the Ctrl-C as well and ends its workers. A second signal would kill them at once.
        try:
            job.wait(_GRACE)
        except subprocess.TimeoutExpired:
            job.terminate()
            job.wait()
        raise
    finally:
        # Orphans of the job may still hold its stderr.
        stderr.join(_GRACE)
    return stderr.tail or f"the job ended with {job.returncode}"


def _unlock(
    identity_pipe: int, server: FunctionServer, job: subprocess.Popen[bytes], unserved: list[Exception]
) -> None:
    """Unlocks the server with the identity that the driver writes. If that fails, ends the job and adds the reason."""
    with open(identity_pipe, "rb") as pipe:
        line = pipe.readline().strip()
    # The line is empty if the driver ended before it had an identity for us.
    if not line:
        return
    try:
        server.unlock(Identity.decode(line))
    except Exception as error:  # Of the system, of the TLS library, or a defect: else the workers would wait in vain
        unserved.append(error)
        job.terminate()
