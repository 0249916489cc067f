"""Transports of tensors between ranks: the collectives of the round, or a process group of torch.

All have the same operations, on tensors of equal sizes on all ranks (except ``alltoall``). Operations start in the order of the
calls, which must be the same on all ranks, and return an :class:`.inflight.Inflight`. Messages between two ranks are independent
of that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from .inflight import Inflight, after
from .memory import Buffer, element, same_type

if TYPE_CHECKING:
    from elasticrun._native import CollectiveQueue

#: Bitwise reductions.
BITWISE = ("band", "bor", "bxor")


class Transport(Protocol):
    """Transports tensors of one device type. ``op`` is sum, average, min, max, product, band, bor or bxor."""

    rank: int
    size: int

    def allreduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        """Combines tensors of one type, in place. Several tensors are one fused operation."""

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Inflight:
        """Copies the tensor of rank ``root`` to all ranks, in place."""

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Inflight:
        """Copies the tensor of each rank to all ranks. ``output`` has ``size`` times as many elements."""

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        """Combines blocks of the size of ``output``, and returns to each rank the block with its index."""

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Inflight:
        """Exchanges blocks. Splits are counts of elements, in order of rank."""

    def barrier(self) -> Inflight:
        """Done when all ranks have called it."""


class Messages(Protocol):
    """Transports tensors between two ranks of a group."""

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Inflight:
        """Sends the elements of ``tensor``."""

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Inflight:
        """Fills ``tensor`` with the tensor of the same size that ``source`` sends."""

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Inflight, Callable[[], int]]:
        """Like :meth:`receive`, from the rank that sends first. The second result returns that rank, once it is done."""


class HostTransport:
    """The transport through the ``CollectiveQueue`` of the round. It uses host memory, and copies other memory there."""

    def __init__(self, queue: CollectiveQueue) -> None:
        self.queue = queue
        self.rank = queue.rank
        self.size = queue.size

    def allreduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        if not tensors:
            return Inflight([])
        kind = element(tensors[0].dtype)
        op = reduction_for(tensors[0].dtype, op, prescale * postscale)
        buffers = [Buffer(tensor) for tensor in tensors]
        work = self.queue.allreduce(
            [buffer.bytes for buffer in buffers],
            kind,
            op,
            buffers,
            name=name,
            prescale=prescale,
            postscale=postscale,
        )
        return Inflight([work], copy_back(buffers), buffers)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Inflight:
        buffer = Buffer(tensor, load=self.rank == root)
        address, nbytes = buffer.bytes
        work = self.queue.broadcast(address, nbytes, root, buffer, name=name)
        return Inflight([work], copy_back([buffer]), buffer)

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Inflight:
        same_type("allgather", tensor, output)
        source, gathered = Buffer(tensor), Buffer(output, load=False)
        work = self.queue.allgather(source.bytes, gathered.bytes, (source, gathered), name=name)
        return Inflight([work], copy_back([gathered]), (source, gathered))

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        same_type("reduce_scatter", tensor, output)
        kind = element(tensor.dtype)
        op = reduction_for(tensor.dtype, op, prescale)
        source, share = Buffer(tensor), Buffer(output, load=False)
        work = self.queue.reduce_scatter(
            source.bytes, share.bytes, kind, op, (source, share), name=name, prescale=prescale
        )
        return Inflight([work], copy_back([share]), (source, share))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Inflight:
        same_type("alltoall", tensor, output)
        source, target = Buffer(tensor), Buffer(output, load=False)
        wide = tensor.element_size()
        work = self.queue.alltoall(
            source.bytes,
            [count * wide for count in splits],
            target.bytes,
            [count * wide for count in output_splits],
            (source, target),
            name=name,
        )
        return Inflight([work], copy_back([target]), (source, target))

    def barrier(self) -> Inflight:
        return Inflight([self.queue.barrier()])


class StagedTransport:
    """A transport of host memory for tensors of any device, which are copied there and back.

    Args:
        inner: the transport of host memory.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.rank = inner.rank
        self.size = inner.size

    def allreduce(
        self,
        tensors: Sequence[torch.Tensor],
        op: str,
        prescale: float = 1.0,
        postscale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        staged = [_Staged(tensor) for tensor in tensors]
        pending = self._inner.allreduce([one.host for one in staged], op, prescale, postscale, name)
        return _stored(pending, staged)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Inflight:
        staged = _Staged(tensor, load=self.rank == root)
        return _stored(self._inner.broadcast(staged.host, root, name), [staged])

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Inflight:
        gathered = _Staged(output, load=False)
        return _stored(self._inner.allgather(_Staged(tensor).host, gathered.host, name), [gathered])

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        share = _Staged(output, load=False)
        return _stored(self._inner.reduce_scatter(_Staged(tensor).host, share.host, op, prescale, name), [share])

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Inflight:
        target = _Staged(output, load=False)
        pending = self._inner.alltoall(_Staged(tensor).host, splits, target.host, output_splits, name)
        return _stored(pending, [target])

    def barrier(self) -> Inflight:
        return self._inner.barrier()


class _Staged:
    """A tensor in host memory: itself, or a copy of one of a device."""

    def __init__(self, tensor: torch.Tensor, *, load: bool = True) -> None:
        self.buffer = None if tensor.device.type == "cpu" else Buffer(tensor, load=load)
        self.host = tensor if self.buffer is None else self.buffer.host


def _stored(pending: Inflight, staged: Sequence[_Staged]) -> Inflight:
    store = copy_back([one.buffer for one in staged if one.buffer is not None])
    return pending if store is None else after(pending, store)


def reduction_for(dtype: torch.dtype, op: str, scale: float = 1.0) -> str:
    """The reduction that implements ``op`` for ``dtype``. For bool, as 0 and 1, a sum is "any" and a product is "all".

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


def copy_back(buffers: Sequence[Buffer]) -> Callable[[], None] | None:
    """A function that copies the elements of ``buffers`` back to their tensors; None if no buffer is a copy."""
    copied = [buffer for buffer in buffers if buffer.copied]
    if not copied:
        return None

    def store() -> None:
        for buffer in copied:
            buffer.store()

    return store
