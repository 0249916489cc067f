"""Copies parameters, optimizer states and Python objects between ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch

from elasticrun.process_sets import global_process_set, require_global

from . import optimizer_state
from .broadcast import broadcast_async_, check_root
from .handle import synchronize
from .rounds import host_transport


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any], root_rank: int, process_set: Any = global_process_set
) -> None:
    """Copies the parameters of rank ``root_rank`` to all ranks, in place.

    Args:
        params: a ``state_dict()``, ``named_parameters()`` or parameters. Values that are not tensors are ignored.
        root_rank: rank of the parameters to copy.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        CollectiveMismatch: the ranks have different parameters. The message names rank and parameter.
    """
    require_global(process_set)
    if isinstance(params, Mapping):
        entries = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, (str, bytes, torch.Tensor)):
        entries = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"params is a {type(params).__name__}: pass a state_dict() or a list of parameters")
    handles = [
        broadcast_async_(tensor, root_rank, name) for name, tensor in entries if isinstance(tensor, torch.Tensor)
    ]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Copies the optimizer state of rank ``root_rank`` to all ranks.

    An optimizer without state (before its first step) receives one, without making a step.

    Args:
        optimizer: any optimizer of torch, wrapped or not.
        root_rank: rank of the state to copy.
        model: accepted for Horovod compatibility, without effect.

    Raises:
        WorkersFailed: the round is over.
        ValueError: the ranks' optimizers have different parameters.
    """
    host = host_transport()
    mine = host.rank == root_rank
    state = optimizer.state_dict()
    tensors: list[torch.Tensor] = []
    skeleton = _take_out(state, tensors) if mine else None
    described = [(tuple(t.shape), t.dtype, t.device.type) for t in tensors]
    skeleton, described = broadcast_object((skeleton, described), root_rank)
    if not mine:
        tensors = [torch.empty(shape, dtype=dtype) for shape, dtype, _ in described]
    for index, tensor in enumerate(tensors):
        # The tensors of the root are sent from the device where they are.
        host.broadcast(tensor, root_rank, f"optimizer state {index}").wait()
    if not mine:
        root = _put_back(skeleton, tensors)
        counts = [[len(group["params"]) for group in s["param_groups"]] for s in (state, root)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"the optimizer of rank {root_rank} has groups of {counts[1]} parameters, that of rank "
                f"{host.rank} of {counts[0]}: build the same optimizer on all ranks"
            )
        # load() moves tensors to the devices of their parameters.
        optimizer_state.load(optimizer, root)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: Any = global_process_set
) -> Any:
    """Copies the object of rank ``root_rank`` to all ranks.

    The object is sent as a pickle, between authenticated workers of one job only.

    Args:
        obj: the object to send. Other ranks may pass any value.
        root_rank: rank of the object to send.
        name: name of the operation in errors.
        process_set: only :data:`global_process_set`.

    Raises:
        WorkersFailed: the round is over.
        ValueError: there is no rank ``root_rank``.
    """
    require_global(process_set)
    host = host_transport("broadcast_object")
    check_root(root_rank, host.size)
    mine = host.rank == root_rank
    data = _pickled(obj) if mine else None
    work = host.queue.broadcast_bytes(data, root_rank, name=name)
    work.wait()
    return obj if mine else pickle.loads(cast(bytes, work.result()))


def allgather_object(obj: Any, name: str | None = None, process_set: Any = global_process_set) -> list[Any]:
    """The objects of all ranks, in order of rank.

    The objects are sent as pickles, between authenticated workers of one job only.

    Raises:
        WorkersFailed: the round is over.
    """
    require_global(process_set)
    host = host_transport()
    work = host.queue.allgather_bytes(_pickled(obj), name=name)
    work.wait()
    return [pickle.loads(data) for data in cast(list[bytes], work.result())]


def _pickled(obj: Any) -> bytes:
    """Pickles an object. Uses cloudpickle, if installed, for objects that pickle refuses (such as lambdas)."""
    try:
        return pickle.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        try:
            import cloudpickle
        except ImportError:
            raise
        return cast(bytes, cloudpickle.dumps(obj))


class _TensorReference:
    """A reference in place of a tensor that was taken out."""

    def __init__(self, index: int) -> None:
        self.index = index


def _take_out(value: Any, tensors: list[torch.Tensor]) -> Any:
    """``value`` with a reference in place of each tensor. The tensors are appended to ``tensors``."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TensorReference(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _take_out(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_take_out(item, tensors) for item in value)
    return value


def _put_back(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _TensorReference):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _put_back(item, tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_put_back(item, tensors) for item in value)
    return value
