"""The base classes of process groups: rank, name, messages and shutdown."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import options, tracing
from .inflight import Inflight
from .transport import Messages
from .work import Work

NAME = "elasticrun"

if TYPE_CHECKING:
    # torch's stubs have overloads that no single signature matches.
    class _Base:
        def __init__(self, rank: int, size: int) -> None: ...
        def rank(self) -> int: ...
        def size(self) -> int: ...
else:
    _Base = dist.ProcessGroup


class NamedGroup(_Base):
    """A process group written in Python, with the name and rank that torch expects.

    Args:
        rank: rank of this process in the group.
        size: number of ranks in the group.
        description: description until torch sets one.
    """

    def __init__(self, rank: int, size: int, description: str) -> None:
        super().__init__(rank, size)
        self._name = ""
        self._description = description

    def _get_backend(self, device: torch.device) -> NamedGroup:
        """The back end for tensors of ``device``: this group, for any device."""
        return self

    @property
    def group_name(self) -> str:
        """The name of this group in torch."""
        names: Any = dist.distributed_c10d._world.pg_names
        return str(names.get(self, self._name))

    @property
    def group_desc(self) -> str:
        """The description of this group."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description


class Group(NamedGroup):
    """Members of a round, in order of rank.

    Args:
        rank: rank of this process in the group.
        size: number of ranks in the group.
        messages: transport of tensors between two ranks.
        timeout: default maximum wait of operations.
    """

    def __init__(self, rank: int, size: int, messages: Messages, timeout: timedelta | None = None) -> None:
        super().__init__(rank, size, NAME)
        self._messages = messages
        self._timeout = timeout
        self._error: Exception | None = None

    @property
    def error(self) -> Exception | None:
        """The error of the first failed operation, as a new object without traceback and cause."""
        return None if self._error is None else _without_traceback(self._error)

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int) -> Work:
        """Sends a tensor to a rank, which must receive it with the same tag."""
        (tensor,) = tensors
        self._check_peer("send to", dst)
        return self._work(self._messages.send(tensor, dst, tag), tensors)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Receives a tensor that a rank sends with the same tag, into a tensor of the same size."""
        (tensor,) = tensors
        self._check_peer("receive from", source)
        message = self._messages.receive(tensor, source, tag)
        return self._work(message, tensors, source=lambda: source)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Like :meth:`recv`, from the rank that sends first. The group of all ranks does not support it."""
        (tensor,) = tensors
        message, source = self._messages.receive_any(tensor, tag)
        return self._work(message, tensors, source=source)

    def getBackendName(self) -> str:
        """The name of the back end."""
        return NAME

    def shutdown(self) -> None:
        """Does nothing, because the transport belongs to the round."""

    def abort(self) -> None:
        """Does nothing, because the round's abort ends the operations."""

    def __repr__(self) -> str:
        return f"<elasticrun process group, rank {self.rank()} of {self.size()}>"

    def _check_peer(self, what: str, rank: int) -> None:
        options.check_rank(what, rank, self.size())
        if rank == self.rank():
            raise ValueError(f"{what} {rank}: that is this rank itself; copy the tensor")

    def _work(
        self,
        pending: Inflight,
        results: Sequence[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
        **more: Any,
    ) -> Work:
        # DistributedDataParallel imports the compiler, and calls collectives in its constructor.
        tracing.exclude()
        limit = options.limit(opts, timeout, self._timeout)
        return Work(pending, results, limit, self._failed, **more)

    def _failed(self, error: Exception) -> None:
        if self._error is None:
            self._error = _without_traceback(error)


def _without_traceback(error: Exception) -> Exception:
    """A copy of ``error`` without its traceback, cause and context.

    The traceback refers to the frames of the training function, whose objects a group would keep alive.
    """
    try:
        duplicate = copy.copy(error)
    except Exception:
        # Its class cannot be called with its arguments.
        return RuntimeError(str(error))
    return duplicate if type(duplicate) is type(error) else RuntimeError(str(error))
