"""What carries tensors from rank to rank: the collectives of the round, or a process group of torch.

Both have the same operations, on tensors of equal sizes on all ranks (``alltoall`` aside). They start
in the order of the calls, which is the same on all ranks, and return a :class:`Pending`. Messages between two are
apart from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from .memory import Buffer, element, same_type
from .pending import Pending

if TYPE_CHECKING:
    from elasticrun._native import Lane

#: Reductions of bits.
BITWISE = ("band", "bor", "bxor")


class Transport(Protocol):
    """Carries tensors of one kind of device. ``op`` is sum, average, min, max, product, band, bor or bxor."""

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

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Pending:
        """Brings the tensor of each rank to all: ``output`` holds ``size`` times as many elements."""

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
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

    def barrier(self) -> Pending:
        """Done when all ranks are here."""


class Messages(Protocol):
    """Carries tensors between two of a group."""

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        """Sends the elements of ``tensor``."""

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        """Fills ``tensor``, which is of the size of what ``source`` sends."""

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Pending, Callable[[], int]]:
        """As :meth:`receive`, from whoever sends first; and who that was, once it is done."""


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
        op = combined(tensors[0].dtype, op, prescale * postscale)
        buffers = [Buffer(tensor) for tensor in tensors]
        work = self.lane.allreduce(
            [buffer.bytes for buffer in buffers],
            kind,
            op,
            buffers,
            name=name,
            prescale=prescale,
            postscale=postscale,
        )
        return Pending([work], stored(buffers), buffers)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Pending:
        buffer = Buffer(tensor, load=self.rank == root)
        address, nbytes = buffer.bytes
        work = self.lane.broadcast(address, nbytes, root, buffer, name=name)
        return Pending([work], stored([buffer]), buffer)

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Pending:
        same_type("allgather", tensor, output)
        own, every = Buffer(tensor), Buffer(output, load=False)
        work = self.lane.allgather(own.bytes, every.bytes, (own, every), name=name)
        return Pending([work], stored([every]), (own, every))

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Pending:
        same_type("reduce_scatter", tensor, output)
        kind = element(tensor.dtype)
        op = combined(tensor.dtype, op, prescale)
        source, share = Buffer(tensor), Buffer(output, load=False)
        work = self.lane.reduce_scatter(
            source.bytes, share.bytes, kind, op, (source, share), name=name, prescale=prescale
        )
        return Pending([work], stored([share]), (source, share))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Pending:
        same_type("alltoall", tensor, output)
        source, target = Buffer(tensor), Buffer(output, load=False)
        wide = tensor.element_size()
        work = self.lane.alltoall(
            source.bytes,
            [count * wide for count in splits],
            target.bytes,
            [count * wide for count in output_splits],
            (source, target),
            name=name,
        )
        return Pending([work], stored([target]), (source, target))

    def barrier(self) -> Pending:
        return Pending([self.lane.barrier()])


def combined(dtype: torch.dtype, op: str, scale: float = 1.0) -> str:
    """The reduction that ``op`` is for ``dtype``: of bool, as 0 and 1, a sum is "any" and a product is "all".

    Raises:
        TypeError: ``dtype`` has no such reduction, or cannot be scaled.
    """
    if op in BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"{op} of {dtype}: bits are those of integers and bool")
    if dtype is not torch.bool:
        return op
    if scale != 1.0:
        raise TypeError("tensors of torch.bool cannot be scaled: use an integer type")
    return {"sum": "max", "product": "min"}.get(op, op)


def stored(buffers: Sequence[Buffer]) -> Callable[[], None] | None:
    """What copies the elements of ``buffers`` back to their tensors, if any are copies."""
    copied = [buffer for buffer in buffers if buffer.copied]
    if not copied:
        return None

    def store() -> None:
        for buffer in copied:
            buffer.store()

    return store
