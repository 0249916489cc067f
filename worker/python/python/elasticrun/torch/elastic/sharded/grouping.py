"""Groups of an optimizer's parameters, and the values that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticrun.errors import StateError


@dataclass
class Grouping:
    """The groups of an optimizer, and the objects that ``build`` returned beside it. A scheduler has values for each group."""

    #: Names of the parameters of each group.
    names: list[list[str]] = field(default_factory=list)
    #: Options of each group.
    options: list[dict[str, Any]] = field(default_factory=list)
    #: The state of each further object.
    others: list[Any] = field(default_factory=list)


def regrouped(stored: Sequence[Grouping], names: list[list[str]]) -> Grouping:
    """The values of a commit for an optimizer with these groups.

    If no worker of the commit had the same groups, each group has the options that its parameters had, and further objects
    are as in a worker with as many groups.

    Args:
        stored: the different groupings of the workers of the commit.
        names: names of the parameters of each group.

    Raises:
        StateError: the parameters were not there, or had different options. Or no worker had as many groups.
    """
    for grouping in stored:
        if grouping.names == names:
            return grouping
    for grouping in stored:
        if len(grouping.names) == len(names):
            options = {
                name: given
                for of_worker in stored
                for given, group in zip(of_worker.options, of_worker.names, strict=True)
                for name in group
            }
            return Grouping(names, [_options_of(group, options) for group in names], grouping.others)
    raise StateError(
        f"the optimizer has {len(names)} groups of parameters, and in no worker of the commit had it as many: build the same"
        " number in each round"
    )


def _options_of(group: Sequence[str], options: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The options of the parameters of a group, which are the same for all of them."""
    for name in group:
        if name not in options:
            raise StateError(
                f"the optimizer has the parameter {name}, which it has not in the commit: build the same one in each round"
            )
        first = options[group[0]]
        if options[name] is not first and options[name] != first:
            raise StateError(
                f"the optimizer has {group[0]} and {name} in one group, and the commit has them with other options: build"
                " the same groups of parameters in each round"
            )
    return options[group[0]] if group else {}
