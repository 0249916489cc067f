"""The loop around the training function."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Concatenate, NoReturn, ParamSpec, TypeVar

from .. import _native, lifecycle, notifications
from ..errors import ElasticrunError, HostsUpdated, Interrupted, Stopped, WorkersFailed
from .compiled import judge
from .state import State

__all__ = ["run"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=State)

#: Whether this process has told its agent that training is done.
_finished = False


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorates a training function, so that it goes on through all changes of the job's hosts.

    ``func`` gets the state first. It is called once for each round that this process is a member of, until it
    returns or raises an error of its own. Before each call the state is the same in all workers, that of the
    newest commit; ``func`` must go on from wherever it is.

    A worker that was in a round before calls ``state.on_reset()`` first, with its state restored; what reset
    callbacks change in the state is brought to the newcomers, too. Collectives in them pair with those that
    newcomers call before they come here.

    - :class:`~elasticrun.errors.WorkersFailed` out of ``func`` (or chained by ``raise ... from``) leads to the
      next round, from the newest commit.
    - :class:`~elasticrun.errors.HostsUpdated` likewise, and nothing is done again.
    - :class:`~elasticrun.errors.Stopped` ends the process with one line on stderr and exit code 0: its slot is
      no longer part of the job, or the job is over.
    - What JAX makes of one of these in a function that it compiled counts as that one.
    - Any other error goes to the caller. The process should end with it then: it is a failed worker.

    A process trains once: when ``func`` has returned, the worker is done and should end soon.

    Raises:
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
        forget = notifications.on_hosts_updated(state._told_of_update)
        try:
            return _rounds(state, lambda: func(state, *args, **kwargs))
        except Stopped as stopped:
            _end(stopped)
        finally:
            forget()

    return train


def _rounds(state: State, train: Callable[[], R]) -> R:
    global _finished
    # A collective before the loop may have joined the first round; that one serves.
    joined = lifecycle.has_joined()
    _native.adopt_state()
    while True:
        try:
            if not joined:
                lifecycle.join()
            joined = False
            state._begin_round()
            result = train()
        except Exception as error:
            meaning = judge(error)
            interrupt = _interrupt(meaning)
            if interrupt is None:
                if meaning is error:
                    raise
                raise meaning from error
            _let_go(error)
            _let_go(interrupt)
            continue
        _native.finish()
        _finished = True
        return result


def _interrupt(error: BaseException | None) -> Interrupted | None:
    """The interrupt that ``error`` is or was raised from; a :class:`Stopped` is raised as it is."""
    while error is not None:
        if isinstance(error, (WorkersFailed, HostsUpdated)):
            return error
        if isinstance(error, Stopped):
            raise error
        error = error.__cause__
    return None


def _let_go(error: BaseException) -> None:
    """Empties the frames that ``error`` came through: who keeps it keeps nothing of the training function's.

    Memory of devices is free again before the next round asks for more, and a DistributedDataParallel whose
    backward was cut off is gone before its hooks see the gradients of the next one.
    """
    for one in _chain(error):
        traceback.clear_frames(one.__traceback__)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """``error``, and what it was raised from or while."""
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
