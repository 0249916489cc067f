"""gloo, whose operations end with the round whatever gloo does with them.

A part of an operation that gloo has begun to write or to read when its connection breaks is forgotten
(gloo/transport/tcp/pair.cc: ``signalException`` tells what has not begun), and who waits for it waits until the
timeout of the group, half an hour. The operation may be that of a DistributedDataParallel, which nothing can
interrupt. So what torch gets is not gloo's operation but one of ours around it: done when gloo's is, failed when the
round is over and gloo has closed the connections, after which it writes to no tensor any more.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elasticrun import _native, errors

from . import abort, connections, tracing
from .group import Named
from .operation import Operation

_log = logging.getLogger("elasticrun.torch")

#: What gives an operation.
_CALLS = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced",
    "all_to_all_single", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv", "recv_anysource",
    "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip
#: Longest wait in seconds for gloo's thread to close broken connections.
_PATIENCE = 10.0
#: Seconds between two looks at them.
_PAUSE = 0.001


def register() -> None:
    """Has torch's groups of gloo made here. Does nothing in a torch whose gloo is not a plugin (before 2.15)."""
    backend: Any = dist.Backend
    if not hasattr(backend, "_ensure_backend_registered"):
        return
    backend._ensure_backend_registered("gloo")
    plugin = backend._plugins.get("GLOO")
    if plugin is None or isinstance(plugin.creator_fn, _Maker):
        return
    backend._plugins["GLOO"] = plugin._replace(creator_fn=_Maker(plugin.creator_fn))


class _Maker:
    """What torch calls for a group of gloo."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, options: Any, backend_options: Any) -> Any:
        group = self._make(options, backend_options)
        whole = options.process_group
        # Beside back ends of other devices (cpu:gloo,cuda:nccl) torch wants gloo itself.
        alone = whole is not None and whole.name() == "gloo"
        return guarded(group) if alone and _native.in_round() else group


def guarded(group: Any) -> Gloo:
    """``group``, a ProcessGroupGloo that met in the store of the current round, ended with that."""
    return Gloo(group, _native.world().round)


class Gloo(Named):
    """A group of gloo. What it does is what gloo does, until ``round`` is aborted.

    Args:
        group: a ProcessGroupGloo that met in the store of ``round``.
        round: the round it belongs to.
    """

    def __init__(self, group: Any, round: int) -> None:
        super().__init__(group.rank(), group.size(), "gloo")
        self._group = group
        self._round = round
        self._ends = connections.ends(round)
        self._lock = threading.Lock()
        self._running: set[Operation] = set()
        self._over = False
        self._kept = False
        abort.watch(self, round)

    def abort(self) -> None:
        """The round is over, and its connections are broken: what gloo does not end is ended here."""
        until = time.monotonic() + _PATIENCE
        while self._running and not connections.are_closed(self._ends):
            if time.monotonic() > until:
                _log.warning("gloo did not close the connections of round %d in time", self._round)
                break
            time.sleep(_PAUSE)
        with self._lock:
            self._over = True
            left = list(self._running)
        for operation in left:
            self._give_up(operation)

    def monitored_barrier(self, *args: Any, **kwargs: Any) -> None:
        """Waits until all ranks are here; an error names those that are not."""
        self._group.monitored_barrier(*args, **kwargs)

    def getBackendName(self) -> str:
        """Not gloo's: what torch's own code finds under that it takes for a ProcessGroupGloo."""
        return "elasticrun:gloo"

    def shutdown(self) -> None:
        """As gloo's."""
        self._group.shutdown()

    @property
    def options(self) -> Any:
        """gloo's own."""
        return self._group.options

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._group._set_default_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return int(self._group._get_sequence_number_for_group())

    def _set_sequence_number_for_group(self) -> None:
        self._group._set_sequence_number_for_group()

    def _start(self, call: str, *args: Any, **kwargs: Any) -> Operation:
        tracing.keep_out()
        if self._is_over():
            raise self._failure()
        operation = Operation(getattr(self._group, call)(*args, **kwargs))
        with self._lock:
            self._running.add(operation)
        operation.follow(self._ended)
        if self._is_over():
            self._give_up(operation)
        return operation

    def _is_over(self) -> bool:
        return self._over

    def _failure(self) -> errors.WorkersFailed:
        return errors.WorkersFailed(f"round {self._round} was aborted while gloo was at work")

    def _give_up(self, operation: Operation) -> None:
        with self._lock:
            keep, self._kept = not self._kept, True
        if keep:
            # gloo's thread waits, and who destroys the group waits for the thread: nobody does.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
        operation.end(self._failure())

    def _ended(self, operation: Operation) -> None:
        with self._lock:
            self._running.discard(operation)

    def __repr__(self) -> str:
        return f"<gloo process group of round {self._round}, rank {self.rank()} of {self.size()}>"


def _delegate(call: str) -> Callable[..., Operation]:
    def start(self: Gloo, *args: Any, **kwargs: Any) -> Operation:
        return self._start(call, *args, **kwargs)

    start.__name__ = call
    start.__doc__ = "As gloo's."
    return start


for _call in _CALLS:
    setattr(Gloo, _call, _delegate(_call))
