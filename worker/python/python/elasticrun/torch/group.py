"""What torch.distributed asks of every group, whatever it carries: rank, name, messages, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from . import options, tracing
from .pending import Pending
from .transport import Messages
from .work import Work

NAME = "elasticrun"

if TYPE_CHECKING:
    # torch's stubs have overloads that no one signature matches.
    class _Base:
        def __init__(self, rank: int, size: int) -> None: ...
        def rank(self) -> int: ...
        def size(self) -> int: ...
else:
    _Base = dist.ProcessGroup


class Named(_Base):
    """What torch asks of each group that is written in Python, whatever it does: who it is.

    Args:
        rank: this process's place.
        size: how many there are.
        description: what it is for, until torch says it.
    """

    def __init__(self, rank: int, size: int, description: str) -> None:
        super().__init__(rank, size)
        self._name = ""
        self._description = description

    def _get_backend(self, device: torch.device) -> Named:
        """What carries tensors of ``device``: this, whatever the device."""
        return self

    @property
    def group_name(self) -> str:
        """The name that torch knows this group by."""
        names: Any = dist.distributed_c10d._world.pg_names
        return str(names.get(self, self._name))

    @property
    def group_desc(self) -> str:
        """What torch was told that this group is for."""
        return self._description

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description


class Group(Named):
    """Members of a round, in order of rank.

    Args:
        rank: this process's place.
        size: how many there are.
        messages: carries tensors from one to another.
        timeout: longest wait of an operation that says no other.
    """

    def __init__(self, rank: int, size: int, messages: Messages, timeout: timedelta | None = None) -> None:
        super().__init__(rank, size, NAME)
        self._messages = messages
        self._timeout = timeout
        self._error: Exception | None = None

    @property
    def error(self) -> Exception | None:
        """What the first failed operation said."""
        return self._error

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        """Sends a tensor to a rank, which receives it with the same tag."""
        (tensor,) = tensors
        self._check_peer("send to", to)
        return self._work(self._messages.send(tensor, to, tag), tensors)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Receives what a rank sends with the same tag, into a tensor of the same size."""
        (tensor,) = tensors
        self._check_peer("receive from", source)
        message = self._messages.receive(tensor, source, tag)
        return self._work(message, tensors, source=lambda: source)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """As :meth:`recv`, from the rank that sends first. Groups of some ranks alone have it."""
        (tensor,) = tensors
        message, source = self._messages.receive_any(tensor, tag)
        return self._work(message, tensors, source=source)

    def getBackendName(self) -> str:
        """The back end's name."""
        return NAME

    def shutdown(self) -> None:
        """Nothing: what carries the tensors belongs to the round."""

    def abort(self) -> None:
        """Nothing: the round's abort ends its operations."""

    def __repr__(self) -> str:
        return f"<elasticrun process group, rank {self.rank()} of {self.size()}>"

    def _check_peer(self, what: str, rank: int) -> None:
        options.check_rank(what, rank, self.size())
        if rank == self.rank():
            raise ValueError(f"{what} {rank}: that is this rank itself; copy the tensor")

    def _work(
        self,
        pending: Pending,
        results: Sequence[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
        **more: Any,
    ) -> Work:
        # DistributedDataParallel imports the compiler, and calls collectives when it is made.
        tracing.keep_out()
        limit = options.limit(opts, timeout, self._timeout)
        return Work(pending, results, limit, self._failed, **more)

    def _failed(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
