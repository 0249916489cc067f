"""DistributedOptimizer: a torch optimizer whose gradients are those of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Adasum, Average, name_of, reduction_of

from . import adasum_optimizer
from .buckets import Layout, Reduction, assign
from .compression import Compression
from .memory import refuse_sparse
from .rounds import host_transport
from .transport import HostTransport


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: Any = global_process_set,
) -> torch.optim.Optimizer:
    """An optimizer of ``optimizer``'s class and parameters that steps with the gradients of all ranks.

    Gradients are reduced in buckets while ``loss.backward()`` goes on; ``step()`` waits for them. To look at
    reduced gradients before the step (clipping), call ``synchronize()``, then ``step()`` within
    ``skip_synchronize()``.

    Args:
        optimizer: the optimizer to wrap; use only the one that is returned.
        named_parameters: as ``model.named_parameters()``; names stand in errors.
        compression: how gradients travel, of :class:`Compression`.
        backward_passes_per_step: backward passes whose gradients add up before they are reduced.
        op: Average, Sum or Adasum (which combines the steps that each rank would make by itself).
        gradient_predivide_factor: an average divides by it before the sum, and by the rest after it.
        num_groups: as an integer ``groups``.
        groups: lists of parameters that are reduced together, or into how many groups to put all.
        sparse_as_dense: reduces sparse gradients as dense ones. Without, they are refused.
        process_set: only :data:`global_process_set`.

    Raises:
        ValueError: an argument is out of its range, or names are not unique or are missing.
    """
    require_global(process_set)
    op = reduction_of(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(
            f"gradient_predivide_factor is for op=Average, not {op.name}: it splits the division"
        )
    if backward_passes_per_step <= 0:
        raise ValueError(
            f"backward_passes_per_step is {backward_passes_per_step}: it must be 1 or more"
        )
    named = check_names(optimizer, named_parameters)
    if op == Adasum:
        mixin: type = adasum_optimizer.AdasumStep
        options = {"compression": compression}
    else:
        mixin = GradientReduction
        options = {
            "compression": compression,
            "op": op,
            "predivide": gradient_predivide_factor,
            "groups": groups if groups is not None else (num_groups or None),
            "sparse_as_dense": sparse_as_dense,
        }
    # A class of its own below the optimizer's, so that isinstance and schedulers see what they expect.
    cls: Any = type(optimizer.__class__.__name__, (mixin, optimizer.__class__), {})
    wrapped = cls.__new__(cls)
    # A scheduler may have put a step of its own there, which is not ours.
    wrapped.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    wrapped._begin(named, backward_passes_per_step, **options)
    result: torch.optim.Optimizer = wrapped
    return result


def check_names(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
) -> list[tuple[str, torch.Tensor]]:
    """The optimizer's parameters with their names, in the order of ``named_parameters``.

    Raises:
        ValueError: a name is used twice, or a parameter of the optimizer has none.
    """
    owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is None:
        return [
            (f"group {at} parameter {index}", parameter)
            for at, group in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if not all(isinstance(entry, tuple) and len(entry) == 2 for entry in named):
        raise ValueError(
            "named_parameters must be pairs of name and parameter: pass model.named_parameters()"
        )
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"named_parameters has these names more than once: {', '.join(twice)}")
    known = {id(parameter) for _, parameter in named}
    missing = [parameter for parameter in owned if id(parameter) not in known]
    if missing:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in missing[:3])
        raise ValueError(
            f"{len(missing)} parameter(s) of the optimizer are not in named_parameters "
            f"(shapes {shapes}): pass those of the whole model"
        )
    mine = {id(parameter) for parameter in owned}
    return [(name, parameter) for name, parameter in named if id(parameter) in mine]


def take_over(parameter: torch.Tensor, hook: Any) -> None:
    """Has ``hook`` called with each gradient of ``parameter``, in place of an earlier optimizer's hook."""
    holder: Any = parameter
    earlier = getattr(holder, "_elasticrun_hook", None)
    if earlier is not None:
        earlier.remove()
    holder._elasticrun_hook = holder.register_post_accumulate_grad_hook(hook)


if TYPE_CHECKING:
    _Optimizer = torch.optim.Optimizer
else:
    # At run time it stands in front of the class of the user's optimizer.
    _Optimizer = object


class GradientReduction(_Optimizer):
    """What a wrapped optimizer does more: its methods come before those of the optimizer's own class."""

    def _begin(
        self,
        named: Sequence[tuple[str, torch.Tensor]],
        passes: int,
        compression: Any,
        op: Any,
        predivide: float,
        groups: Any,
        sparse_as_dense: bool,
    ) -> None:
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        self._names = [name for name, _ in trained]
        self._parameters = [parameter for _, parameter in trained]
        self._compression = compression
        self._sparse_as_dense = sparse_as_dense
        self._passes = passes
        wire = [
            compression.compress(torch.empty(0, dtype=parameter.dtype))[0].dtype
            for parameter in self._parameters
        ]
        self._op, self._predivide = op, predivide
        self._buckets = assign(self._parameters, _grouped(groups, self._parameters))
        self._wire = wire
        self._layouts: dict[int, Layout] = {}
        self._host: HostTransport | None = None
        self._reduction: Reduction | None = None
        self._announced = False
        self._forget()
        for index, parameter in enumerate(self._parameters):
            take_over(parameter, self._hook(index))

    @property
    def backward_passes_per_step(self) -> int:
        """Backward passes whose gradients add up before they are reduced."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes it, from the next step on."""
        if passes <= 0:
            raise ValueError(f"backward_passes_per_step is {passes}: it must be 1 or more")
        self._passes = passes
        self._left = [passes] * len(self._parameters)

    def synchronize(self) -> None:
        """Waits until the gradients of all ranks are in ``parameter.grad``.

        What no rank has computed since the last step stays None.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: the ranks have different models; the parameter is named.
            NotImplementedError: a sparse gradient, without ``sparse_as_dense``.
        """
        reduction = self._started(self._current())
        had = [parameter.grad is not None for parameter in self._parameters]
        for index, parameter in enumerate(self._parameters):
            if self._traveling[index] is None:
                self._send(index, parameter)
        reduction.start_ready(had, self._traveling, True)
        try:
            somewhere = reduction.wait()
            self._receive(somewhere)
        finally:
            self._clear()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it ``step()`` takes the gradients as they are, after a ``synchronize()`` by hand."""
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def step(self, closure: Any = None) -> Any:
        """Waits for the gradients, then does the optimizer's step.

        With a ``closure``, which computes the gradients anew, they are reduced after it has run.
        """
        if not self._waits:
            self._synchronized = False
            return super().step(closure)
        if closure is not None:
            return super().step(self._reduced(closure))
        if self._synchronized:
            warnings.warn(
                "step() reduces the gradients again after synchronize(): call it within "
                "optimizer.skip_synchronize()",
                stacklevel=2,
            )
        self.synchronize()
        self._synchronized = False
        return super().step()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As that of the optimizer.

        Raises:
            AssertionError: gradients are under way: after ``backward()`` comes ``step()`` or
                ``synchronize()`` first.
        """
        if self._reduction is not None:
            raise AssertionError(
                "zero_grad() was called between backward() and step(): the gradients are on their "
                "way to the other ranks. Call step() or synchronize() first"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As that of the optimizer; gradients under way are forgotten."""
        self._forget()
        super().load_state_dict(state_dict)

    def _reduced(self, closure: Any) -> Any:
        def run() -> Any:
            loss = closure()
            self.synchronize()
            self._synchronized = False
            return loss

        return run

    def _hook(self, index: int) -> Any:
        def accumulated(parameter: torch.Tensor) -> None:
            self._synchronized = False
            host = self._current()
            if self._left[index] <= 0:
                raise AssertionError(
                    f"the gradient of {self._names[index]!r} was computed more than "
                    f"{self._passes} time(s) before step(): raise backward_passes_per_step, or call "
                    "step() after each backward()"
                )
            self._left[index] -= 1
            if self._left[index] == 0:
                self._send(index, parameter)
                self._ready[index] = True
                reduction = self._started(host)
                if reduction.starts_next(index):
                    reduction.start_ready(self._ready, self._traveling, False)

        return accumulated

    def _current(self) -> HostTransport:
        """The round's collectives. What is left of a step in an earlier round is forgotten."""
        host = host_transport()
        if host is not self._host:
            self._host = host
            self._announced = False
            self._forget()
        return host

    def _started(self, host: HostTransport) -> Reduction:
        """This step's reduction; begins it."""
        if self._reduction is None:
            self._reduction = Reduction(self._layout(host.size), host, not self._announced)
            self._announced = True
        return self._reduction

    def _layout(self, ranks: int) -> Layout:
        if ranks not in self._layouts:
            op, scale = name_of(self._op), (1.0, 1.0)
            if self._predivide != 1.0:
                # "average" divides once; this one before and after a sum.
                op, scale = "sum", (1.0 / self._predivide, self._predivide / ranks)
            self._layouts[ranks] = Layout(
                self._parameters, self._names, self._buckets, op, scale, self._wire
            )
        return self._layouts[ranks]

    def _send(self, index: int, parameter: torch.Tensor) -> None:
        """Makes the tensor that travels."""
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        elif gradient.is_sparse and self._sparse_as_dense:
            gradient = gradient.to_dense()
        elif gradient.layout is not torch.strided:
            refuse_sparse(gradient, f"reduction of the gradient of {self._names[index]!r}")
        with torch.no_grad():
            self._traveling[index], self._contexts[index] = self._compression.compress(gradient)

    def _receive(self, somewhere: Sequence[bool]) -> None:
        with torch.no_grad():
            for index, parameter in enumerate(self._parameters):
                if not somewhere[index]:
                    parameter.grad = None
                    continue
                result = self._compression.decompress(self._traveling[index], self._contexts[index])
                if parameter.grad is None:
                    parameter.grad = result
                elif parameter.grad.is_sparse:
                    parameter.grad = result.to_sparse()
                elif result is not parameter.grad:
                    parameter.grad.copy_(result)

    def _clear(self) -> None:
        count = len(self._parameters)
        self._reduction = None
        self._left = [self._passes] * count
        self._ready = [False] * count
        self._traveling: list[torch.Tensor | None] = [None] * count
        self._contexts: list[Any] = [None] * count

    def _forget(self) -> None:
        self._clear()
        self._synchronized = False
        self._waits = True


def _grouped(groups: Any, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of the parameters that ``groups`` puts together."""
    if groups is None:
        return []
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"groups is {groups}: it must be 1 or more, or lists of parameters")
        each = -(-len(parameters) // groups)
        indices = list(range(len(parameters)))
        return [indices[at : at + each] for at in range(0, len(indices), each)]
    place = {id(parameter): index for index, parameter in enumerate(parameters)}
    result: list[list[int]] = []
    taken: set[int] = set()
    for group in groups:
        members = []
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise ValueError(f"groups must hold parameters, not {type(parameter).__name__}")
            if id(parameter) in taken:
                raise ValueError("groups holds a parameter more than once")
            taken.add(id(parameter))
            if id(parameter) in place:
                members.append(place[id(parameter)])
        if members:
            result.append(members)
    return result
