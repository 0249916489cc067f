"""The loop around the training function, for functions that use torch.distributed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from elasticrun import elastic

from .. import distributed
from ..failures import judge

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=elastic.State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorates a training function: see :func:`elasticrun.elastic.run`, which this does, and more.

    - The default group of torch.distributed is destroyed when its round is over, and made anew for the next
      one before ``func`` is called, if :func:`elasticrun.torch.init_process_group` made it. Make what is bound
      to the group (DistributedDataParallel) in ``func``.
    - An error of torch that comes from the end of the round (a RuntimeError of NCCL, gloo, or of what only
      holds a future) leads to the next round, as ``WorkersFailed`` does.
    """

    @functools.wraps(func)
    def in_round(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        distributed.refresh()
        try:
            return func(state, *args, **kwargs)
        except Exception as error:
            meaning = judge(error)
            if meaning is error:
                raise
            raise meaning from error

    return elastic.run(in_round)
