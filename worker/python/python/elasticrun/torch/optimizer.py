"""DistributedOptimizer: a torch optimizer that steps with the combined gradients of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from elasticrun.process_sets import global_process_set, require_global
from elasticrun.reductions import Adasum, Average, reduction_of

from .adasum_optimizer import AdasumStep
from .compression import Compression
from .gradient_reduction import GradientReduction
from .parameters import check_names


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
    """An optimizer with the class and parameters of ``optimizer`` that steps with the combined gradients of all ranks.

    Gradients are reduced in buckets during ``loss.backward()``, and ``step()`` waits for them. To access reduced gradients
    before the step (for example to clip them), call ``synchronize()``, then ``step()`` within ``skip_synchronize()``.

    Args:
        optimizer: the optimizer to wrap. Use only the returned one.
        named_parameters: ``model.named_parameters()``. Errors contain the names.
        compression: compression of gradients, from :class:`Compression`.
        backward_passes_per_step: backward passes whose gradients are accumulated before they are reduced.
        op: Average, Sum or Adasum, which combines the local steps of all ranks.
        gradient_predivide_factor: for averages: divisor before the sum. The division is completed after it.
        num_groups: same as an integer ``groups``.
        groups: lists of parameters that are reduced together, or the number of groups for all parameters.
        sparse_as_dense: whether sparse gradients are reduced as dense ones. Otherwise they are refused.
        process_set: only :data:`global_process_set`.

    Raises:
        ValueError: an argument is out of range, or a name is missing or not unique.
    """
    require_global(process_set)
    op = reduction_of(op)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(f"gradient_predivide_factor is for op=Average, not {op.name}: it splits the division")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}: it must be 1 or more")
    named = check_names(optimizer, named_parameters)
    if op == Adasum:
        mixin: type = AdasumStep
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
    # A new subclass of the optimizer's class, so that isinstance checks and schedulers work.
    cls: Any = type(optimizer.__class__.__name__, (mixin, optimizer.__class__), {})
    wrapped = cls.__new__(cls)
    # A scheduler may have replaced the step method of the instance, which must not be copied.
    wrapped.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
    # Scripts read the names under Horovod's name of the attribute.
    wrapped._parameter_names = {parameter: name for name, parameter in named}
    wrapped._begin(named, backward_passes_per_step, **options)
    result: torch.optim.Optimizer = wrapped
    return result
