"""What carries tensors from rank to rank: the collectives of the round, or a process group of torch.

Both have the same five operations, on tensors of equal sizes on all ranks (``alltoall`` aside). They start
in the order of the calls, which is the same on all ranks, and return a :class:`Pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from .memory import Buffer, element
from .pending import Pending

if TYPE_CHECKING:
    from elasticrun._native import Lane


class Transport(Protocol):
    """Carries tensors of one kind of device. ``op`` is sum, average, min, max or product."""

    rank: int
    size: int

    def allreduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        name: str | None = None,
    ) -> Pending:
        """Combines tensors of one type, in place; several are one fused operation."""

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Pending:
        """Brings the tensor of rank ``root`` to all, in place."""

    def allgather(
        self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None
    ) -> Pending:
        """Brings the tensor of each rank to all: ``output`` holds ``size`` times as many elements."""

    def reduce_scatter(
        self, tensor: torch.Tensor, output: torch.Tensor, op: str, name: str | None = None
    ) -> Pending:
        """Combines blocks of ``output``'s size, and gives each rank the one in its place."""

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Pending:
        """Exchanges blocks; splits are counts of elements, in order of rank."""


class HostTransport:
    """The collectives of the round (``Lane``): memory of the host; what lies elsewhere is copied."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.rank = lane.rank
        self.size = lane.size

    def allreduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        name: str | None = None,
    ) -> Pending:
        if not tensors:
            return Pending([])
        kind = element(tensors[0].dtype)
        if tensors[0].dtype is torch.bool:
            # 0 and 1: a sum is "any", a product is "all".
            op = {"sum": "max", "product": "min"}.get(op, op)
        buffers = [Buffer(tensor) for tensor in tensors]
        work = self.lane.allreduce(
            [buffer.elements for buffer in buffers],
            kind,
            op,
            buffers,
            name=name,
            prescale=prescale,
            postscale=postscale,
        )
        return Pending([work], _store(buffers), buffers)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Pending:
        buffer = Buffer(tensor, load=self.rank == root)
        address, nbytes = buffer.bytes
        work = self.lane.broadcast(address, nbytes, root, buffer, name=name)
        return Pending([work], _store([buffer]), buffer)

    def allgather(
        self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None
    ) -> Pending:
        own, every = Buffer(tensor), Buffer(output, load=False)
        work = self.lane.allgather(own.bytes, every.bytes, (own, every), name=name)
        return Pending([work], _store([every]), (own, every))

    def reduce_scatter(
        self, tensor: torch.Tensor, output: torch.Tensor, op: str, name: str | None = None
    ) -> Pending:
        source, share = Buffer(tensor), Buffer(output, load=False)
        work = self.lane.reduce_scatter(
            source.elements, share.elements, element(tensor.dtype), op, (source, share), name=name
        )
        return Pending([work], _store([share]), (source, share))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Pending:
        source, target = Buffer(tensor), Buffer(output, load=False)
        wide = tensor.element_size()
        work = self.lane.alltoall(
            source.bytes[0],
            [count * wide for count in splits],
            target.bytes[0],
            [count * wide for count in output_splits],
            (source, target),
            name=name,
        )
        return Pending([work], _store([target]), (source, target))


def _store(buffers: Sequence[Buffer]) -> Callable[[], None] | None:
    copied = [buffer for buffer in buffers if buffer.copied]
    if not copied:
        return None

    def store() -> None:
        for buffer in copied:
            buffer.store()

    return store
