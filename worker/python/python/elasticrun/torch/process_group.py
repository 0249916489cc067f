"""The c10d back end ``elasticrun``: torch.distributed on the collectives of the round.

``torch.distributed.init_process_group("elasticrun")`` and :func:`elasticrun.torch.init_process_group` create a group. Tensors are
in host memory. A group lives for one round, and its operations fail as soon as the round is over. Operations of a group run one
after the other, in the order of the calls.

The default group uses the collectives of the round. Every other group (``new_group``, a dimension of a DeviceMesh) uses a gloo
group that is created in the round, so its operations have an independent order. ``send`` and ``recv`` in the group of all ranks
use one gloo group for each pair of ranks, so they are also independent of the collectives.

Callbacks of futures run on separate threads, and may wait for operations that they start.

Not supported: ``recv`` from any rank in the group of all ranks, sparse tensors, and, except in the default group, reductions of
types that gloo does not support (int16, unsigned types wider than a byte).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from . import layout, options
from .group import Group
from .inflight import Inflight, after, joined
from .memory import refuse_sparse, same_type
from .transport import Messages, Transport
from .work import Work


class ProcessGroup(Group):
    """A group of all or some members of the round.

    Args:
        transport: transport of collectives.
        messages: transport of tensors between two ranks.
        timeout: default maximum wait of operations.
    """

    def __init__(self, transport: Transport, messages: Messages, timeout: timedelta | None = None) -> None:
        super().__init__(transport.rank, transport.size, messages, timeout)
        self._transport = transport

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Combines the tensors of all ranks, in place."""
        tensors = options.tensors(tensors)
        op, prescale = options.reduction(opts)
        kinds: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in tensors:
            refuse_sparse(tensor, "allreduce")
            kinds.setdefault(tensor.dtype, []).append(tensor)
        pending = [self._transport.allreduce(alike, op, prescale=prescale) for alike in kinds.values()]
        return self._work(joined(pending), tensors, opts, timeout)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Same as :meth:`allreduce`, which fuses several tensors as well."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, root: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        """Combines the tensors of all ranks into that of the root. Those of other ranks do not change."""
        tensors = options.tensors(tensors)
        opts = root if hasattr(root, "rootRank") else None
        root = options.root(root, self.size())
        name, prescale = options.reduction(opts if opts is not None else op)
        mine = self.rank() == root
        work = [tensor if mine else tensor.clone() for tensor in tensors]
        pending = [self._transport.allreduce([tensor], name, prescale=prescale) for tensor in work]
        return self._work(joined(pending), tensors, opts, timeout)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Copies the tensors of the root to all ranks, in place."""
        tensors = options.tensors(tensors)
        root = options.root(opts, self.size())
        pending = [self._transport.broadcast(tensor, root) for tensor in tensors]
        return self._work(joined(pending), tensors, opts, timeout)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Copies the tensor of each rank to all ranks, into a list in order of rank."""
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        pending = []
        for output, tensor in zip(outputs, inputs, strict=True):
            layout.check_list("allgather", output, tensor, self.size())
            flat = tensor.new_empty(self.size() * tensor.numel())
            gathered = self._transport.allgather(tensor, flat)
            pending.append(after(gathered, layout.unpack(flat, output)))
        return self._work(joined(pending), [t for o in outputs for t in o], opts, timeout)

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Copies the tensor of each rank to all ranks, concatenated in ``output``."""
        layout.check_size("all_gather_single", output, tensor.numel() * self.size())
        return self._work(self._transport.allgather(tensor, output), [output], opts)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`all_gather_single`."""
        for output, tensor in zip(outputs, inputs, strict=True):
            layout.check_size("all_gather_single", output, tensor.numel() * self.size())
        pending = [self._transport.allgather(tensor, output) for output, tensor in zip(outputs, inputs, strict=True)]
        return self._work(joined(pending), outputs, opts)

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`allgather`; ``outputs`` has a list for each rank."""
        columns = [list(column) for column in zip(*outputs, strict=True)]
        return self.allgather(columns, inputs, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Combines lists of tensors, one for each rank, and returns to each rank its tensor."""
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        op, prescale = options.reduction(opts)
        pending = []
        for output, tensors in zip(outputs, inputs, strict=True):
            layout.check_list("reduce_scatter", tensors, output, self.size())
            flat = layout.pack(tensors, output)
            pending.append(self._scattered(flat, output, op, prescale))
        return self._work(joined(pending), outputs, opts, timeout)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Combines blocks of the size of ``output``, and returns to each rank the block with its index."""
        layout.check_size("reduce_scatter_single", tensor, output.numel() * self.size())
        op, prescale = options.reduction(opts)
        return self._work(self._scattered(tensor, output, op, prescale), [output], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several :meth:`reduce_scatter_single`."""
        op, prescale = options.reduction(opts)
        pending = [
            self._scattered(tensor, output, op, prescale) for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._work(joined(pending), outputs, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Copies the tensor of each rank to the root, into a list in order of rank."""
        root = options.root(opts, self.size())
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        tensor = inputs[0]
        mine = self.rank() == root
        if mine:
            layout.check_list("gather", outputs[0], tensor, self.size())
        count = tensor.numel()
        flat = tensor.new_empty(self.size() * count if mine else 0)
        splits = [count if rank == root else 0 for rank in range(self.size())]
        pending = self._transport.alltoall(tensor, splits, flat, [count if mine else 0] * self.size())
        results = list(outputs[0]) if mine else []
        if mine:
            pending = after(pending, layout.unpack(flat, results))
        return self._work(pending, results, opts, timeout)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Sends to each rank its tensor of the root's list."""
        root = options.root(opts, self.size())
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        output = outputs[0]
        mine = self.rank() == root
        if mine:
            layout.check_list("scatter", inputs[0], output, self.size())
        flat = layout.pack(inputs[0], output) if mine else output.new_empty(0)
        count = output.numel()
        output_splits = [count if rank == root else 0 for rank in range(self.size())]
        pending = self._transport.alltoall(flat, [count if mine else 0] * self.size(), output, output_splits)
        return self._work(pending, [output], opts, timeout)

    def alltoall(
        self,
        outputs: list[torch.Tensor],
        inputs: list[torch.Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Sends a tensor to each rank, and receives one from each."""
        layout.check_count("alltoall", outputs, self.size())
        layout.check_count("alltoall", inputs, self.size())
        for other in (*inputs, *outputs):
            same_type("alltoall", inputs[0], other)
        splits = [tensor.numel() for tensor in inputs]
        output_splits = [tensor.numel() for tensor in outputs]
        flat = layout.pack(inputs, inputs[0])
        target = outputs[0].new_empty(sum(output_splits))
        pending = self._transport.alltoall(flat, splits, target, output_splits)
        return self._work(after(pending, layout.unpack(target, outputs)), outputs, opts, timeout)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None,
        splits: Sequence[int] | None,
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        """Exchanges blocks of rows. Without splits, all blocks have the same size."""
        pending = self._transport.alltoall(
            tensor,
            layout.row_splits("input", tensor, splits, self.size()),
            output,
            layout.row_splits("output", output, output_splits, self.size()),
        )
        return self._work(pending, [output], opts, timeout)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Waits until all ranks have called it."""
        return self._work(self._transport.barrier(), [], opts, timeout)

    # The names in torch before 2.15.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _scattered(self, tensor: torch.Tensor, output: torch.Tensor, op: str, prescale: float) -> Inflight:
        layout.check_size("reduce_scatter", tensor, output.numel() * self.size())
        return self._transport.reduce_scatter(tensor, output, op, prescale)
