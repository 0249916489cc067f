"""The optimizer step of DistributedOptimizer with ops other than Adasum: combines gradients before the step."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from elasticrun.reductions import name_of

from .buckets import BucketReduction, Layout, assign
from .memory import refuse_sparse
from .parameters import grouped
from .rounds import host_transport
from .transport import HostTransport
from .wrapped_optimizer import WrappedOptimizer


def take_over(parameter: torch.Tensor, hook: Any) -> None:
    """Calls ``hook`` with each gradient of ``parameter``, instead of the hook of an earlier optimizer."""
    holder: Any = parameter
    earlier = getattr(holder, "_elasticrun_hook", None)
    if earlier is not None:
        earlier.remove()
    holder._elasticrun_hook = holder.register_post_accumulate_grad_hook(hook)


class GradientReduction(WrappedOptimizer):
    """Steps with the combined gradients of all ranks, which are reduced in buckets during ``backward()``."""

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
        wire = [compression.compress(torch.empty(0, dtype=parameter.dtype))[0].dtype for parameter in self._parameters]
        self._op, self._predivide = op, predivide
        self._buckets = assign(self._parameters, grouped(groups, self._parameters))
        self._wire = wire
        self._layouts: dict[int, Layout] = {}
        self._host: HostTransport | None = None
        self._reduction: BucketReduction | None = None
        self._announced = False
        self._forget()
        for index, parameter in enumerate(self._parameters):
            take_over(parameter, self._hook(index))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """See :class:`.wrapped_optimizer.WrappedOptimizer`."""
        super().set_backward_passes_per_step(passes)
        self._left = [passes] * len(self._parameters)

    def synchronize(self) -> None:
        """Waits until ``parameter.grad`` contains the combined gradients of all ranks.

        A gradient that no rank has computed since the last step stays None.

        Raises:
            WorkersFailed: the round is over.
            CollectiveMismatch: the ranks have different models. The message names the parameter.
            NotImplementedError: a gradient is sparse, without ``sparse_as_dense``.
        """
        reduction = self._started(self._current())
        had = [parameter.grad is not None for parameter in self._parameters]
        for index, parameter in enumerate(self._parameters):
            if self._sent[index] is None:
                self._send(index, parameter)
        reduction.start_ready(had, self._sent, True)
        try:
            on_any_rank = reduction.wait()
            self._receive(on_any_rank)
        finally:
            self._clear()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """In this context ``step()`` uses the current gradients, after an explicit ``synchronize()``."""
        self._waits = False
        try:
            yield
        finally:
            self._waits = True

    def step(self, closure: Any = None) -> Any:
        """Waits for the gradients, then makes the optimizer's step.

        A ``closure`` recomputes the gradients. They are reduced after it has run.
        """
        if not self._waits:
            self._synchronized = False
            return super().step(closure)
        if closure is not None:
            return super().step(self._reduced(closure))
        if self._synchronized:
            warnings.warn(
                "step() reduces the gradients again after synchronize(): call it within optimizer.skip_synchronize()",
                stacklevel=2,
            )
        self.synchronize()
        self._synchronized = False
        return super().step()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like that of the wrapped optimizer.

        Raises:
            AssertionError: a reduction is running: call ``step()`` or ``synchronize()`` after ``backward()`` first.
        """
        if self._reduction is not None:
            raise AssertionError(
                "zero_grad() was called between backward() and step(): the gradients are on their "
                "way to the other ranks. Call step() or synchronize() first"
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like that of the wrapped optimizer. Discards a running reduction."""
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
                    reduction.start_ready(self._ready, self._sent, False)

        return accumulated

    def _current(self) -> HostTransport:
        """The transport of the current round. Discards an unfinished step of an earlier round."""
        host = host_transport()
        if host is not self._host:
            self._host = host
            self._announced = False
            self._forget()
        return host

    def _started(self, host: HostTransport) -> BucketReduction:
        """The reduction of this step. The first call starts it."""
        if self._reduction is None:
            self._reduction = BucketReduction(self._layout(host.size), host, not self._announced)
            self._announced = True
        return self._reduction

    def _layout(self, ranks: int) -> Layout:
        if ranks not in self._layouts:
            op, scale = name_of(self._op), (1.0, 1.0)
            if self._predivide != 1.0:
                # Divides before and after a sum, instead of once as "average" does.
                op, scale = "sum", (1.0 / self._predivide, self._predivide / ranks)
            self._layouts[ranks] = Layout(self._parameters, self._names, self._buckets, op, scale, self._wire)
        return self._layouts[ranks]

    def _send(self, index: int, parameter: torch.Tensor) -> None:
        """Creates the tensor to send."""
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        elif gradient.is_sparse and self._sparse_as_dense:
            gradient = gradient.to_dense()
        elif gradient.layout is not torch.strided:
            refuse_sparse(gradient, f"reduction of the gradient of {self._names[index]!r}")
        with torch.no_grad():
            self._sent[index], self._contexts[index] = self._compression.compress(gradient)

    def _receive(self, on_any_rank: Sequence[bool]) -> None:
        with torch.no_grad():
            for index, parameter in enumerate(self._parameters):
                if not on_any_rank[index]:
                    parameter.grad = None
                    continue
                result = self._compression.decompress(self._sent[index], self._contexts[index])
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
        self._sent: list[torch.Tensor | None] = [None] * count
        self._contexts: list[Any] = [None] * count

    def _forget(self) -> None:
        self._clear()
        self._synchronized = False
        self._waits = True
