"""The training loop for functions that use torch.distributed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from elasticrun import elastic

from .. import distributed
from ..failures import classify

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=elastic.State)


def run(func: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorates a training function like :func:`elasticrun.elastic.run`, with two additions.

    - The default group of torch.distributed is destroyed when its round is over. If
      :func:`elasticrun.torch.init_process_group` created it, it is created again before the next call of ``func``. Create
      objects that are bound to the group (DistributedDataParallel) in ``func``.
    - A torch error that the end of the round has caused (a RuntimeError of NCCL, gloo or a future) leads to the next round,
      as ``WorkersFailed`` does.
    """

    @functools.wraps(func)
    def in_round(state: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        distributed.refresh()
        try:
            return func(state, *args, **kwargs)
        except Exception as error:
            meaning = classify(error)
            if meaning is error:
                raise
            raise meaning from error

    return elastic.run(in_round)
