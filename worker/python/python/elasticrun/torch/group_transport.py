"""A process group of torch (NCCL, gloo) as a carrier of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from .pending import Pending

_OPS = {
    "sum": ReduceOp.SUM,
    "average": ReduceOp.SUM,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "product": ReduceOp.PRODUCT,
}


class _Part:
    """A Work of torch as a part of a :class:`Pending`."""

    def __init__(self, work: dist.Work, judge: Callable[[Exception], Exception]) -> None:
        self._work = work
        self._judge = judge

    def wait(self, timeout: float | None = None) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            meaning = self._judge(error)
            if meaning is error:
                raise
            raise meaning from error

    def poll(self) -> bool:
        return self._work.is_completed()

    def then(self, callback: Callable[[Exception | None], None]) -> None:
        def done(future: torch.futures.Future[Any]) -> None:
            try:
                future.value()
            except RuntimeError as error:
                callback(self._judge(error))
            else:
                callback(None)

        self._work.get_future().add_done_callback(done)


class GroupTransport:
    """Operations of ``group``; ``judge`` tells what its errors mean, such as that the round is over."""

    def __init__(self, group: dist.ProcessGroup, judge: Callable[[Exception], Exception]) -> None:
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
        if op == "average":
            postscale /= self.size
        tensors = [tensor.detach() for tensor in tensors]
        with torch.no_grad():
            # One contiguous tensor: one launch, and no limits on layouts.
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            if prescale != 1.0:
                flat.mul_(prescale)
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op]
        work = self._call(lambda: self.group.allreduce([flat], options))

        def finish() -> None:
            with torch.no_grad():
                if postscale != 1.0:
                    if flat.is_floating_point():
                        flat.mul_(postscale)
                    else:
                        flat.copy_((flat * postscale).trunc())
                at = 0
                for tensor in tensors:
                    part = flat.narrow(0, at, tensor.numel())
                    tensor.copy_(part.view(tensor.shape))
                    at += tensor.numel()

        return Pending([work], finish, flat)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str | None = None) -> Pending:
        tensor = tensor.detach()
        dense = tensor.contiguous()
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        work = self._call(lambda: self.group.broadcast([dense], options))

        def finish() -> None:
            if dense is not tensor:
                tensor.copy_(dense)

        return Pending([work], finish, dense)

    def allgather(
        self, tensor: torch.Tensor, output: torch.Tensor, name: str | None = None
    ) -> Pending:
        source = tensor.detach().contiguous().view(-1)
        target = output.view(-1)
        work = self._call(lambda: self.group._allgather_base(target, source))
        return Pending([work], None, (source, target))

    def reduce_scatter(
        self, tensor: torch.Tensor, output: torch.Tensor, op: str, name: str | None = None
    ) -> Pending:
        source = tensor.detach().contiguous().view(-1)
        target = output.view(-1)
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPS[op]
        work = self._call(lambda: self.group._reduce_scatter_base(target, source, options))

        def finish() -> None:
            if op == "average":
                target.div_(self.size)

        return Pending([work], finish, (source, target))

    def alltoall(
        self,
        tensor: torch.Tensor,
        splits: Sequence[int],
        output: torch.Tensor,
        output_splits: Sequence[int],
        name: str | None = None,
    ) -> Pending:
        source = tensor.detach().contiguous().view(-1)
        target = output.view(-1)
        work = self._call(
            lambda: self.group.alltoall_base(target, source, list(output_splits), list(splits))
        )
        return Pending([work], None, (source, target))

    def _call(self, start: Callable[[], dist.Work]) -> _Part:
        try:
            return _Part(start(), self._judge)
        except RuntimeError as error:
            meaning = self._judge(error)
            if meaning is error:
                raise
            raise meaning from error
