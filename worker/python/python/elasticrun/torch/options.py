"""Converts options of torch.distributed to arguments of the transports."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp

_OPS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "average",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
    ReduceOp.PRODUCT: "product",
    ReduceOp.BAND: "band",
    ReduceOp.BOR: "bor",
    ReduceOp.BXOR: "bxor",
}


def reduction(opts: Any) -> tuple[str, float]:
    """Name of the reduction, and the factor of its inputs.

    Raises:
        NotImplementedError: the reduction is not supported.
    """
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
        f"the elasticrun back end has no reduction {getattr(kind, 'name', kind)}: use {', '.join(_OPS.values())}"
    )


def root(opts: Any, size: int) -> int:
    """The root rank of a call. Default: 0.

    Raises:
        ValueError: a group of ``size`` ranks does not have the root.
    """
    rank = opts.rootRank if hasattr(opts, "rootRank") else int(opts or 0)
    check_rank("root", rank, size)
    return rank


def check_rank(what: str, rank: int, size: int) -> None:
    """Raises ValueError unless a group of ``size`` ranks has ``rank``."""
    if not 0 <= rank < size:
        raise ValueError(f"{what} {rank} is no rank: the group has ranks 0 to {size - 1}")


def limit(opts: Any, given: timedelta | None, default: timedelta | None) -> timedelta | None:
    """Maximum wait of a call: the given one, that of its options, or the default of the group."""
    wanted = given if given is not None else getattr(opts, "timeout", None)
    return wanted if wanted is not None and wanted > timedelta(0) else default


def tensors(given: Any) -> list[torch.Tensor]:
    """The tensors of a call that takes one tensor or several, as a list."""
    return [given] if isinstance(given, torch.Tensor) else list(given)
