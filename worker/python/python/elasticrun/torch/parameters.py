"""The parameters of a distributed optimizer: their names and their groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch


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
            (f"group {group_index} parameter {index}", parameter)
            for group_index, group in enumerate(optimizer.param_groups)
            for index, parameter in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if not all(isinstance(entry, tuple) and len(entry) == 2 for entry in named):
        raise ValueError("named_parameters must be pairs of name and parameter: pass model.named_parameters()")
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
    owned_ids = {id(parameter) for parameter in owned}
    return [(name, parameter) for name, parameter in named if id(parameter) in owned_ids]


def grouped(groups: Any, parameters: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of the parameters in each of ``groups``.

    Raises:
        ValueError: the number of groups is less than 1, a parameter is in two groups, or a group contains another object.
    """
    if groups is None:
        return []
    if isinstance(groups, int):
        if groups <= 0:
            raise ValueError(f"groups is {groups}: it must be 1 or more, or lists of parameters")
        each = -(-len(parameters) // groups)
        indices = list(range(len(parameters)))
        return [indices[start : start + each] for start in range(0, len(indices), each)]
    index_of = {id(parameter): index for index, parameter in enumerate(parameters)}
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
            if id(parameter) in index_of:
                members.append(index_of[id(parameter)])
        if members:
            result.append(members)
    return result
