"""The c10d back end ``elasticrun``: torch.distributed on the collectives of the round.

``torch.distributed.init_process_group("elasticrun")`` makes one, and so does
:func:`elasticrun.torch.init_process_group`. Tensors live in host memory. A group lives for one round; its
operations fail as soon as the round is over. Operations run in the order of the calls, one after the other.

Not offered: subgroups (``new_group`` of some ranks), send and recv, bitwise reductions, sparse tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from . import layout
from .memory import refuse_sparse
from .pending import Pending
from .transport import HostTransport
from .work import Work

NAME = "elasticrun"

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "average",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.PRODUCT: "product",
}


if TYPE_CHECKING:
    # torch's stubs have overloads that no one signature matches.
    class _Base:
        def __init__(self, rank: int, size: int) -> None: ...
        def rank(self) -> int: ...
        def size(self) -> int: ...
else:
    _Base = dist.ProcessGroup


class ProcessGroup(_Base):
    """The members of the round, as torch.distributed sees them.

    Args:
        transport: carries the tensors.
        timeout: longest wait of an operation that says no other.
    """

    def __init__(self, transport: HostTransport, timeout: timedelta | None = None) -> None:
        super().__init__(transport.rank, transport.size)
        self._transport = transport
        self._timeout = timeout
        self._error: Exception | None = None
        self._name = ""
        self._description = NAME

    @property
    def error(self) -> Exception | None:
        """What the first failed operation said."""
        return self._error

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Combines the tensors of all ranks, in place."""
        tensors = _list(tensors)
        op, prescale = _reduction(opts)
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            refuse_sparse(tensor, "allreduce")
            kinds.setdefault(tensor.dtype, []).append(tensor)
        pending = [
            self._transport.allreduce(alike, op, prescale=prescale) for alike in kinds.values()
        ]
        return self._work(_joined(pending), tensors, opts, timeout)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """As :meth:`allreduce`: several tensors are one operation there as well."""
        return self.allreduce(tensors, opts)

    def reduce(
        self, tensors: Any, root: Any = None, op: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combines the tensors of all ranks into that of the root; the others keep theirs."""
        tensors = _list(tensors)
        opts = root if hasattr(root, "rootRank") else None
        root = opts.rootRank if opts is not None else int(root or 0)
        name, prescale = _reduction(opts if opts is not None else op)
        mine = self.rank() == root
        work = [tensor if mine else tensor.clone() for tensor in tensors]
        pending = [self._transport.allreduce([tensor], name, prescale=prescale) for tensor in work]
        return self._work(_joined(pending), tensors, opts, timeout)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Brings the tensors of the root to all, in place."""
        tensors = _list(tensors)
        root = opts.rootRank if hasattr(opts, "rootRank") else int(opts or 0)
        self._check_root(root)
        pending = [self._transport.broadcast(tensor, root) for tensor in tensors]
        return self._work(_joined(pending), tensors, opts, timeout)

    def allgather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Brings the tensor of each rank to all, into a list in order of rank."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        pending = []
        for output, tensor in zip(outputs, inputs, strict=True):
            layout.check_list("allgather", output, tensor, self.size())
            flat = tensor.new_empty(self.size() * tensor.numel())
            gathered = self._transport.allgather(tensor, flat)
            pending.append(_then(gathered, layout.unpack(flat, output)))
        return self._work(_joined(pending), [t for o in outputs for t in o], opts, timeout)

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Brings the tensor of each rank to all, one after the other in ``output``."""
        layout.check_size("all_gather_single", output, tensor.numel() * self.size())
        return self._work(self._transport.allgather(tensor, output), [output], opts)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`all_gather_single`."""
        pending = [
            self._transport.allgather(tensor, output)
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._work(_joined(pending), outputs, opts)

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`allgather`; ``outputs`` has a list for each rank."""
        columns = [list(column) for column in zip(*outputs, strict=True)]
        return self.allgather(columns, inputs, opts)

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Combines a list of tensors, one for each rank, and gives each rank its own."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        op, prescale = _reduction(opts)
        pending = []
        for output, tensors in zip(outputs, inputs, strict=True):
            layout.check_list("reduce_scatter", tensors, output, self.size())
            flat = layout.pack(tensors, output)
            pending.append(self._scattered(flat, output, op, prescale))
        return self._work(_joined(pending), outputs, opts, timeout)

    def reduce_scatter_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Work:
        """Combines blocks of the size of ``output`` and gives each rank the one in its place."""
        layout.check_size("reduce_scatter_single", tensor, output.numel() * self.size())
        op, prescale = _reduction(opts)
        return self._work(self._scattered(tensor, output, op, prescale), [output], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`reduce_scatter_single`."""
        op, prescale = _reduction(opts)
        pending = [
            self._scattered(tensor, output, op, prescale)
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._work(_joined(pending), outputs, opts)

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Brings the tensor of each rank to the root, into a list in order of rank."""
        root = opts.rootRank if hasattr(opts, "rootRank") else int(opts or 0)
        self._check_root(root)
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        tensor = inputs[0]
        mine = self.rank() == root
        if mine:
            layout.check_list("gather", outputs[0], tensor, self.size())
        count = tensor.numel()
        flat = tensor.new_empty(self.size() * count if mine else 0)
        to = [count if rank == root else 0 for rank in range(self.size())]
        pending = self._transport.alltoall(tensor, to, flat, [count if mine else 0] * self.size())
        results = list(outputs[0]) if mine else []
        if mine:
            pending = _then(pending, layout.unpack(flat, results))
        return self._work(pending, results, opts, timeout)

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """Gives each rank its tensor of the root's list."""
        root = opts.rootRank if hasattr(opts, "rootRank") else int(opts or 0)
        self._check_root(root)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        output = outputs[0]
        mine = self.rank() == root
        if mine:
            layout.check_list("scatter", inputs[0], output, self.size())
        flat = layout.pack(inputs[0], output) if mine else output.new_empty(0)
        count = output.numel()
        from_ = [count if rank == root else 0 for rank in range(self.size())]
        pending = self._transport.alltoall(
            flat, [count if mine else 0] * self.size(), output, from_
        )
        return self._work(pending, [output], opts, timeout)

    def alltoall(
        self,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Sends a tensor to each rank and gets one from each."""
        layout.check_count("alltoall", outputs, self.size())
        layout.check_count("alltoall", inputs, self.size())
        splits = [tensor.numel() for tensor in inputs]
        output_splits = [tensor.numel() for tensor in outputs]
        flat = layout.pack(inputs, inputs[0])
        target = outputs[0].new_empty(sum(output_splits))
        pending = self._transport.alltoall(flat, splits, target, output_splits)
        return self._work(_then(pending, layout.unpack(target, outputs)), outputs, opts, timeout)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None,
        splits: Sequence[int] | None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Exchanges blocks of rows; without splits all blocks are equal."""
        pending = self._transport.alltoall(
            tensor,
            layout.row_splits("input", tensor, splits, self.size()),
            output,
            layout.row_splits("output", output, output_splits, self.size()),
        )
        return self._work(pending, [output], opts, timeout)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Waits until all ranks are here."""
        return self._work(Pending([self._transport.lane.barrier()]), [], opts, timeout)

    # The names that torch before 2.15 calls.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        """Refused."""
        raise NotImplementedError(_refusal("send"))

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Refused."""
        raise NotImplementedError(_refusal("recv"))

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Refused."""
        raise NotImplementedError(_refusal("recv from any rank"))

    def getBackendName(self) -> str:
        """The back end's name."""
        return NAME

    def shutdown(self) -> None:
        """Nothing: the lane belongs to the round."""

    def abort(self) -> None:
        """Nothing: the round's abort ends its operations."""

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

    def __repr__(self) -> str:
        return f"<elasticrun process group, rank {self.rank()} of {self.size()}>"

    def _scattered(
        self, tensor: torch.Tensor, output: torch.Tensor, op: str, prescale: float
    ) -> Pending:
        if prescale != 1.0:
            tensor = tensor * prescale
        return self._transport.reduce_scatter(tensor, output, op)

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size():
            raise ValueError(f"root {root} is no rank: the group has ranks 0 to {self.size() - 1}")

    def _work(
        self,
        pending: Pending,
        results: Sequence[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        given = timeout if timeout is not None else getattr(opts, "timeout", None)
        limit = given if given is not None and given > timedelta(0) else self._timeout
        return Work(pending, results, limit, self._failed)

    def _failed(self, error: Exception) -> None:
        if self._error is None:
            self._error = error


def _list(tensors: Any) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _reduction(opts: Any) -> tuple[str, float]:
    """Name of the reduction and the factor that comes before it."""
    op = getattr(opts, "reduceOp", opts)
    if op is None:
        return "sum", 1.0
    kind = getattr(op, "op", op)
    if kind == ReduceOp.PREMUL_SUM:
        factor = op.factor
        return "sum", float(factor.item() if isinstance(factor, torch.Tensor) else factor)
    for known, name in _OPS.items():
        if kind == known:
            return name, 1.0
    raise NotImplementedError(
        f"the elasticrun back end has no reduction {op}: use {', '.join(_OPS.values())}"
    )


def _joined(pending: Sequence[Pending]) -> Pending:
    """One operation of several."""
    if len(pending) == 1:
        return pending[0]

    def finish() -> None:
        for one in pending:
            one.wait()

    return Pending([part for one in pending for part in one.parts], finish)


def _then(pending: Pending, finish: Callable[[], None]) -> Pending:
    """The operation, and ``finish`` after it."""

    def both() -> None:
        pending.wait()
        finish()

    return Pending(pending.parts, both)


def _refusal(call: str) -> str:
    return (
        f"the elasticrun back end has no {call}: use a collective, or the gloo back end "
        '(elasticrun.torch.init_process_group("gloo"))'
    )
