"""A process group of torch (NCCL, gloo) as a carrier of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from .memory import same_type
from .pending import Pending
from .transport import combined

_OPS = {
    "sum": ReduceOp.SUM,
    "average": ReduceOp.SUM,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "product": ReduceOp.PRODUCT,
    "band": ReduceOp.BAND,
    "bor": ReduceOp.BOR,
    "bxor": ReduceOp.BXOR,
}

#: Types that our own collectives combine, and neither gloo nor NCCL as torch calls them.
_NOT_COMBINED = {getattr(torch, name) for name in ("int16", "uint16", "uint32", "uint64") if hasattr(torch, name)}


class _Part:
    """A Work of torch as a part of a :class:`Pending`."""

    def __init__(self, work: dist.Work, judge: Callable[[Exception], Exception]) -> None:
        self._work = work
        self._judge = judge
        #: What its future said. gloo calls a future's callbacks before the work itself counts as done, so who is
        #: called by one must not wait for the work.
        self._told: tuple[Exception | None] | None = None

    def wait(self, timeout: float | None = None) -> None:
        try:
            if self._told is not None:
                (error,) = self._told
                if error is not None:
                    raise error
            elif timeout is None:
                self._work.wait()
            else:
                self._work.wait(timedelta(seconds=timeout))
        except RuntimeError as error:
            _raise_meaning(error, self._judge)

    def poll(self) -> bool:
        return self._told is not None or self._work.is_completed()

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        def done(future: torch.futures.Future[Any]) -> None:
            error = None
            try:
                future.value()
            except RuntimeError as raised:
                error = self._judge(raised)
            self._told = (error,)
            callback(error)

        self._work.get_future().add_done_callback(done)


class GroupTransport:
    """Operations of ``group``; ``judge`` tells what its errors mean, such as that the round is over.

    What is only moved travels as bytes, so it may be of any type. What is combined must be of a type that the
    group's library knows.
    """

    def __init__(self, group: Any, judge: Callable[[Exception], Exception]) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()
        self._judge = judge

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
        tensors = [tensor.detach() for tensor in tensors]
        options = dist.AllreduceOptions()
        with torch.no_grad():
            # One contiguous tensor: one launch, and no limits on layouts.
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        options.reduceOp = _OPS[combined(flat.dtype, op, prescale * postscale)]
        if prescale != 1.0:
            _scale(flat, prescale)
        if op == "average":
            postscale /= self.size
        work = self._combine(flat, lambda: self.group.allreduce([_elements(flat)], options))

        def finish() -> None:
            with torch.no_grad():
                if postscale != 1.0:
                    _scale(flat, postscale)
                at = 0
                for tensor in tensors:
                    part = flat.narrow(0, at, tensor.numel())
                    tensor.copy_(part.view(tensor.shape))
                    at += tensor.numel()

        return Pending([work], finish, flat)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Pending:
        tensor = tensor.detach()
        dense = _dense(tensor)
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        work = self._call(lambda: self.group.broadcast([_bytes(dense)], options))
        return Pending([work], _copied(dense, tensor), dense)

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Pending:
        same_type("allgather", tensor, output)
        source, target = _dense(tensor), _target(output)
        work = self._call(lambda: self.group._allgather_base(_bytes(target), _bytes(source)))
        return Pending([work], _copied(target, output), (source, target))

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Pending:
        same_type("reduce_scatter", tensor, output)
        source, target = _dense(tensor), _target(output)
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPS[combined(source.dtype, op, prescale)]
        if prescale != 1.0:
            source = source.clone()
            _scale(source, prescale)
        work = self._combine(
            source,
            lambda: self.group._reduce_scatter_base(_elements(target), _elements(source), options),
        )
        copied = _copied(target, output)

        def finish() -> None:
            if op == "average":
                _scale(target, 1.0 / self.size)
            if copied is not None:
                copied()

        return Pending([work], finish, (source, target))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Pending:
        same_type("alltoall", tensor, output)
        source, target = _dense(tensor), _target(output)
        wide = source.element_size()
        work = self._call(
            lambda: self.group.alltoall_base(
                _bytes(target),
                _bytes(source),
                [count * wide for count in output_splits],
                [count * wide for count in splits],
            )
        )
        return Pending([work], _copied(target, output), (source, target))

    def barrier(self) -> Pending:
        return Pending([self._call(lambda: self.group.barrier(dist.BarrierOptions()))])

    def _combine(self, tensor: torch.Tensor, start: Callable[[], dist.Work]) -> _Part:
        if tensor.dtype in _NOT_COMBINED:
            raise TypeError(
                f"tensors of {tensor.dtype} cannot be combined by a group of gloo or NCCL: use a signed type of "
                "32 bits or more"
            )
        return self._call(start)

    def _call(self, start: Callable[[], dist.Work]) -> _Part:
        try:
            return _Part(start(), self._judge)
        except RuntimeError as error:
            _raise_meaning(error, self._judge)


def _raise_meaning(error: RuntimeError, judge: Callable[[Exception], Exception]) -> NoReturn:
    meaning = judge(error)
    if meaning is error:
        raise error
    raise meaning from error


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of a contiguous tensor; those of bool as 0 and 1."""
    flat = tensor.view(-1)
    return flat.view(torch.uint8) if flat.dtype is torch.bool else flat


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous memory with the values of ``tensor``: its own, if that is."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _target(output: torch.Tensor) -> torch.Tensor:
    """Contiguous memory for what becomes ``output``: its own, if that is."""
    output = output.detach()
    plain = output.is_contiguous() and not output.is_conj() and not output.is_neg()
    return output if plain else torch.empty(output.shape, dtype=output.dtype, device=output.device)


def _copied(dense: torch.Tensor, tensor: torch.Tensor) -> Callable[[], None] | None:
    """What copies ``dense`` to ``tensor``, unless they are one memory."""
    if dense.data_ptr() == tensor.data_ptr():
        return None

    def copy() -> None:
        with torch.no_grad():
            tensor.copy_(dense)

    return copy


def _scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiplies in place; whole numbers are cut off."""
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.mul_(factor)
        else:
            tensor.copy_((tensor * factor).trunc())
