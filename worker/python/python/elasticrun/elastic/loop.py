"""The loop around the training function."""

from __future__ import annotations

import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from .. import _native, lifecycle, notifications
from ..errors import ElasticrunError, HostsUpdated, Interrupted, Stopped, WorkerEnded, WorkersFailed
from .compiled import classify
from .state import State

__all__ = ["run"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=State)

_log = logging.getLogger("elasticrun")

#: Whether this process has reported to its agent that training is done.
_finished = False


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorates a training function, so that it continues through changes of the hosts.

    The first argument of ``func`` is the state. ``func`` is called once for each round that this process is a member of,
    until it returns or raises an error that no round explains. Before each call, the state of all workers is that of the
    newest commit. ``func`` must continue from there.

    A worker that was a member of an earlier round first restores its state and calls ``state.on_reset()``. New workers
    receive the changes that reset callbacks make to the state. Collectives in reset callbacks pair with those that new
    workers call before this function.

    - :class:`~elasticrun.errors.WorkersFailed` out of ``func`` (or chained by ``raise ... from``) leads to the next
      round, which begins with the newest commit.
    - :class:`~elasticrun.errors.HostsUpdated` also leads to the next round. No step is repeated.
    - :class:`~elasticrun.errors.Stopped` ends the process with one line on stderr and exit code 0. The slot is no longer
      part of the job, or the job is over.
    - An exception with which JAX replaces one of these in a compiled function counts as the original.
    - Any other error propagates to the caller. The process should exit with it, as a failed worker.

    A process trains once. When ``func`` has returned, the worker is done and should exit soon.

    Raises:
        TypeError: the first argument is no :class:`~elasticrun.elastic.State`.
        ElasticrunError: training is done in this process already.
        NotInitialized: the decorated function is called before ``init()``.
        ForkedError: it is called in a forked child.
        StateError: the state cannot be serialised or restored.
    """

    @functools.wraps(func)
    def train(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        lifecycle.require("elastic.run")
        if _finished:
            raise ElasticrunError(
                "elastic.run: training is done in this process already: call one decorated function, once, for all"
                " that is to be trained"
            )
        if not isinstance(state, State):
            raise TypeError(
                "elastic.run: the first argument of the training function is its state, such as an ObjectState, not an"
                f" object of type {type(state).__name__}"
            )
        unsubscribe = notifications.on_hosts_updated(state._on_update)
        lifecycle.trains(True)
        try:
            return _rounds(state, lambda: func(state, *args, **kwargs))
        except Stopped as stopped:
            _end(stopped)
        finally:
            lifecycle.trains(False)
            unsubscribe()

    return train


def _rounds(state: State, train: Callable[[], R]) -> R:
    global _finished
    # A collective before the loop may have joined the first round, which is used then, also after shutdown() and init().
    joined = lifecycle.has_joined()
    _native.adopt_state()
    while True:
        try:
            if not joined:
                lifecycle.join()
            joined = False
            state._begin_round()
            result = train()
            state._settle()
        except Exception as error:
            _settle(state)
            meaning = classify(error)
            interrupt = _interrupt(meaning)
            if interrupt is None:
                if meaning is error:
                    raise
                raise meaning from error
            if isinstance(interrupt, WorkerEnded):
                # The job may end before this rank has done the rest, and would not say why.
                _log.warning("%s", interrupt)
            _drop_tracebacks(error)
            _drop_tracebacks(interrupt)
            # The next round may be minutes away.
            del meaning, interrupt
            continue
        _native.finish()
        _finished = True
        return result


def _settle(state: State) -> None:
    """Completes a commit that was made before training was interrupted, if that is possible."""
    try:
        state._settle()
    except Exception as error:
        _log.warning("the last commit is lost: %s", error)


def _interrupt(error: BaseException | None) -> Interrupted | None:
    """The interrupt that ``error`` is, or was raised from. Raises a :class:`Stopped` unchanged."""
    while error is not None:
        if isinstance(error, (WorkersFailed, HostsUpdated)):
            return error
        if isinstance(error, Stopped):
            raise error
        error = error.__cause__
    return None


def _drop_tracebacks(error: BaseException) -> None:
    """Clears the frames of ``error`` and drops its tracebacks, so that a reference to it keeps no object of the round alive.

    Device memory is then free before the next round allocates more. An interrupted DistributedDataParallel is freed before
    its hooks can see gradients of the next one. A cleared frame still refers to its function, and so to what that function
    closes over: ``Module.__call__`` runs in a closure over the module.
    """
    for link in _chain(error):
        traceback.clear_frames(link.__traceback__)
        link.__traceback__ = None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """``error``, its causes and its contexts."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__, one.__context__]


def _end(stopped: Stopped) -> NoReturn:
    print(f"elasticrun: {stopped}", file=sys.stderr, flush=True)
    raise SystemExit(0)
