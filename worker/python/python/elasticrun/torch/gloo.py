"""A wrapper around gloo whose operations always end with the round.

When a connection breaks, gloo loses the parts of operations that it has begun to write or read
(gloo/transport/tcp/pair.cc: ``signalException`` fails only those that have not begun). A caller then waits until the timeout of
the group, half an hour. The operation may belong to a DistributedDataParallel, which nothing can interrupt. torch therefore gets
an :class:`.operation.Operation` that wraps gloo's. It is done when gloo's is. It fails when the round is over and gloo has closed
the connections, after which gloo writes to no tensor.
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

from elasticrun import _native, errors, lifecycle

from . import abort, connections, tracing
from .group import NamedGroup
from .operation import Operation

_log = logging.getLogger("elasticrun.torch")

#: Methods of a group that return an operation.
_OPERATIONS = (
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced",
    "all_to_all_single", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "recv", "recv_anysource",
    "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip
#: Maximum wait in seconds for gloo's thread to close broken connections.
_TIMEOUT = 10.0
#: Seconds between two checks for closed connections.
_PAUSE = 0.001


def register() -> None:
    """Makes torch create gloo groups with this wrapper. Does nothing if gloo is not a plugin (torch before 2.15)."""
    backend: Any = dist.Backend
    if not hasattr(backend, "_ensure_backend_registered"):
        return
    backend._ensure_backend_registered("gloo")
    plugin = backend._plugins.get("GLOO")
    if plugin is None or isinstance(plugin.creator_fn, _GroupFactory):
        return
    backend._plugins["GLOO"] = plugin._replace(creator_fn=_GroupFactory(plugin.creator_fn))


class _GroupFactory:
    """The factory that torch calls for a gloo group."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, options: Any, backend_options: Any) -> Any:
        group = self._make(options, backend_options)
        process_group = options.process_group
        # In combination with back ends of other devices (cpu:gloo,cuda:nccl) torch requires gloo itself.
        only_gloo = process_group is not None and process_group.name() == "gloo"
        # A program may import this package and be no worker.
        in_round = lifecycle.is_initialized() and _native.in_round()
        return wrap(group) if only_gloo and in_round else group


def wrap(group: Any) -> GlooGroup:
    """Wraps ``group``, a ProcessGroupGloo that connected through the store of the current round, to end with that round."""
    return GlooGroup(group, _native.world().round)


class GlooGroup(NamedGroup):
    """A wrapped gloo group, which delegates to gloo until ``round`` is aborted.

    Args:
        group: a ProcessGroupGloo that connected through the store of ``round``.
        round: round of the group.
    """

    def __init__(self, group: Any, round: int) -> None:
        super().__init__(group.rank(), group.size(), "gloo")
        self._group = group
        self._round = round
        self._connections = connections.open_connections(round)
        self._lock = threading.Lock()
        self._running: set[Operation] = set()
        self._round_over = False
        self._leaked = False
        abort.watch(self, round)

    def abort(self) -> None:
        """Ends the operations that gloo does not end, after the round's connections were broken."""
        deadline = time.monotonic() + _TIMEOUT
        while self._running and not connections.are_closed(self._connections):
            if time.monotonic() > deadline:
                _log.warning("gloo did not close the connections of round %d in time", self._round)
                break
            time.sleep(_PAUSE)
        with self._lock:
            self._round_over = True
            remaining = list(self._running)
        for operation in remaining:
            self._give_up(operation)

    def monitored_barrier(self, *args: Any, **kwargs: Any) -> None:
        """Waits until all ranks have called it. An error names the missing ranks."""
        self._group.monitored_barrier(*args, **kwargs)

    def getBackendName(self) -> str:
        """A name other than gloo's, because torch treats a group with that name as a ProcessGroupGloo."""
        return "elasticrun:gloo"

    def shutdown(self) -> None:
        """See ProcessGroupGloo."""
        self._group.shutdown()

    @property
    def options(self) -> Any:
        """The options of the gloo group."""
        return self._group.options

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._group._set_default_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return int(self._group._get_sequence_number_for_group())

    def _set_sequence_number_for_group(self) -> None:
        self._group._set_sequence_number_for_group()

    def _start(self, call: str, *args: Any, **kwargs: Any) -> Operation:
        tracing.exclude()
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
        return self._round_over

    def _failure(self) -> errors.WorkersFailed:
        return errors.WorkersFailed(f"round {self._round} was aborted while gloo was at work")

    def _give_up(self, operation: Operation) -> None:
        with self._lock:
            leak, self._leaked = not self._leaked, True
        if leak:
            # gloo's thread is blocked, and destroying the group would wait for the thread. The group is leaked instead.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._group))
        operation.end(self._failure())

    def _ended(self, operation: Operation) -> None:
        with self._lock:
            self._running.discard(operation)

    def __repr__(self) -> str:
        return f"<gloo process group of round {self._round}, rank {self.rank()} of {self.size()}>"


def _delegate(call: str) -> Callable[..., Operation]:
    def start(self: GlooGroup, *args: Any, **kwargs: Any) -> Operation:
        return self._start(call, *args, **kwargs)

    start.__name__ = call
    start.__doc__ = "See ProcessGroupGloo."
    return start


for _call in _OPERATIONS:
    setattr(GlooGroup, _call, _delegate(_call))
