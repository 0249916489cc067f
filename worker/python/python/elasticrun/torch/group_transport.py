"""A transport that uses a process group of torch (NCCL, gloo)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from .inflight import Inflight
from .memory import same_type, scale
from .transport import reduction_for

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

#: Types that elasticrun's collectives combine, but torch's gloo and NCCL groups do not.
_NOT_COMBINED = {getattr(torch, name) for name in ("int16", "uint16", "uint32", "uint64") if hasattr(torch, name)}


class _Part:
    """A torch Work as a part of an :class:`.inflight.Inflight`."""

    def __init__(self, work: dist.Work, classify: Callable[[Exception], Exception]) -> None:
        self._work = work
        self._classify = classify
        #: The outcome that the future reported. gloo runs callbacks of a future before the work counts as done, so a
        #: callback must not wait for the work.
        self._outcome: tuple[Exception | None] | None = None

    def wait(self, timeout: float | None = None) -> None:
        try:
            if self._outcome is not None:
                (error,) = self._outcome
                if error is not None:
                    raise error
            elif timeout is None:
                self._work.wait()
            else:
                self._work.wait(timedelta(seconds=timeout))
        except RuntimeError as error:
            _raise_meaning(error, self._classify)

    def poll(self) -> bool:
        return self._outcome is not None or self._work.is_completed()

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        def done(future: torch.futures.Future[Any]) -> None:
            error = None
            try:
                future.value()
            except RuntimeError as raised:
                error = self._classify(raised)
            self._outcome = (error,)
            callback(error)

        self._work.get_future().add_done_callback(done)


class GroupTransport:
    """Runs operations on ``group``. ``classify`` maps its errors, for example to the error of the round.

    Operations that only move data support tensors of any type. Reductions support the types of the group's library.
    """

    def __init__(self, group: Any, classify: Callable[[Exception], Exception]) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()
        self._classify = classify

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
        tensors = [tensor.detach() for tensor in tensors]
        options = dist.AllreduceOptions()
        with torch.no_grad():
            # One contiguous tensor needs one launch, and allows any layout of the inputs.
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        options.reduceOp = _OPS[reduction_for(flat.dtype, op, prescale * postscale)]
        if prescale != 1.0:
            scale(flat, prescale)
        if op == "average":
            postscale /= self.size
        work = self._combine(flat, lambda: self.group.allreduce([_elements(flat)], options))

        def finish() -> None:
            with torch.no_grad():
                if postscale != 1.0:
                    scale(flat, postscale)
                offset = 0
                for tensor in tensors:
                    part = flat.narrow(0, offset, tensor.numel())
                    tensor.copy_(part.view(tensor.shape))
                    offset += tensor.numel()

        return Inflight([work], finish, flat)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Inflight:
        tensor = tensor.detach()
        dense = _dense(tensor)
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        work = self._call(lambda: self.group.broadcast([_bytes(dense)], options))
        return Inflight([work], _copied(dense, tensor), dense)

    def allgather(self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None) -> Inflight:
        same_type("allgather", tensor, output)
        source, target = _dense(tensor), _target(output)
        work = self._call(lambda: self.group._allgather_base(_bytes(target), _bytes(source)))
        return Inflight([work], _copied(target, output), (source, target))

    def reduce_scatter(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        op: str,
        prescale: float = 1.0,
        name: str | None = None,
    ) -> Inflight:
        same_type("reduce_scatter", tensor, output)
        source, target = _dense(tensor), _target(output)
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPS[reduction_for(source.dtype, op, prescale)]
        if prescale != 1.0:
            source = source.clone()
            scale(source, prescale)
        work = self._combine(
            source,
            lambda: self.group._reduce_scatter_base(_elements(target), _elements(source), options),
        )
        copied = _copied(target, output)

        def finish() -> None:
            if op == "average":
                scale(target, 1.0 / self.size)
            if copied is not None:
                copied()

        return Inflight([work], finish, (source, target))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Inflight:
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
        return Inflight([work], _copied(target, output), (source, target))

    def barrier(self) -> Inflight:
        return Inflight([self._call(lambda: self.group.barrier(dist.BarrierOptions()))])

    def _combine(self, tensor: torch.Tensor, start: Callable[[], dist.Work]) -> _Part:
        if tensor.dtype in _NOT_COMBINED:
            raise TypeError(
                f"tensors of {tensor.dtype} cannot be combined by a group of gloo or NCCL: use a signed type of "
                "32 bits or more"
            )
        return self._call(start)

    def _call(self, start: Callable[[], dist.Work]) -> _Part:
        try:
            return _Part(start(), self._classify)
        except RuntimeError as error:
            _raise_meaning(error, self._classify)


def _raise_meaning(error: RuntimeError, classify: Callable[[Exception], Exception]) -> NoReturn:
    meaning = classify(error)
    if meaning is error:
        raise error
    raise meaning from error


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """All elements of a contiguous tensor, with bool as 0 and 1."""
    flat = tensor.view(-1)
    return flat.view(torch.uint8) if flat.dtype is torch.bool else flat


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a contiguous tensor."""
    return tensor.view(-1).view(torch.uint8)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous memory with the values of ``tensor``: its own memory, if that is contiguous."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _target(output: torch.Tensor) -> torch.Tensor:
    """Contiguous memory for the values of ``output``: its own memory, if that is contiguous."""
    output = output.detach()
    plain = output.is_contiguous() and not output.is_conj() and not output.is_neg()
    return output if plain else torch.empty(output.shape, dtype=output.dtype, device=output.device)


def _copied(dense: torch.Tensor, tensor: torch.Tensor) -> Callable[[], None] | None:
    """A function that copies ``dense`` to ``tensor``; None if they share memory."""
    if dense.data_ptr() == tensor.data_ptr():
        return None

    def copy() -> None:
        with torch.no_grad():
            tensor.copy_(dense)

    return copy
