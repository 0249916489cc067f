"""Batches as a model and its losses take them: tensors of the shapes and types that the estimator was told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Form", "outputs_of"]


@dataclass(frozen=True)
class Form:
    """How columns become tensors, one for each.

    Attributes:
        names: of the columns.
        shapes: of the tensors, with -1 in the place of the rows. Without, a tensor has the shape (rows, values in a row), and
            one of a label that of the model's output if it has as many values.
        dtypes: of the tensors; float32 without.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None

    @classmethod
    def of(
        cls, names: Sequence[str], shapes: Sequence[Any] | None, dtypes: Sequence[torch.dtype] | None, keyword: str
    ) -> Form:
        """Checks what was given; ``keyword`` is the first word of the arguments' names.

        Raises:
            ValueError: there are not as many shapes or types as columns.
        """
        for what, given in (("shapes", shapes), ("dtypes", dtypes)):
            if given is not None and len(given) != len(names):
                raise ValueError(f"{keyword}_{what}: {len(given)} for {len(names)} column(s): expected one for each")
        return cls(
            tuple(names),
            None if shapes is None else tuple(tuple(shape) for shape in shapes),
            None if dtypes is None else tuple(dtypes),
        )

    def check(self, widths: Mapping[str, int | None], keyword: str) -> None:
        """Checks the shapes: one with another number of values would mix rows.

        Args:
            widths: values in each row of a column; None for single values.
            keyword: the first word of the argument's name.

        Raises:
            ValueError: a shape takes more or fewer.
        """
        for name, shape in zip(self.names, self.shapes or (), strict=False):
            values = widths[name] or 1
            if shape[:1] == (-1,) and math.prod(shape[1:]) != values:
                raise ValueError(
                    f"{keyword}_shapes: column {name!r} has {values} value(s) in a row, {list(shape)} takes {math.prod(shape[1:])}"
                )

    def tensors(self, batch: Mapping[str, Any], device: torch.device | None = None) -> list[torch.Tensor]:
        """The tensors of a batch, whose columns are arrays of NumPy.

        Raises:
            ValueError: a column does not have that shape.
        """
        tensors = []
        for place, name in enumerate(self.names):
            dtype = torch.float32 if self.dtypes is None else self.dtypes[place]
            tensor = torch.as_tensor(batch[name]).to(device=device, dtype=dtype)
            if self.shapes is None:
                shape: tuple[int, ...] = (-1, 1) if tensor.dim() == 1 else tuple(tensor.shape)
            else:
                shape = self.shapes[place]
            tensors.append(_shaped(tensor, shape, name))
        return tensors


def _shaped(tensor: torch.Tensor, shape: tuple[int, ...], name: str) -> torch.Tensor:
    rows = len(tensor)
    # Nothing says how many rows there are if there is none.
    wanted = (0, *shape[1:]) if rows == 0 and shape[:1] == (-1,) else shape
    try:
        return tensor.reshape(wanted)
    except RuntimeError:
        raise ValueError(f"column {name!r}: {tuple(tensor.shape)} cannot have the shape {list(shape)}") from None


def outputs_of(given: Any, labels: Sequence[str]) -> list[torch.Tensor]:
    """What a model gave, one tensor for each label.

    Raises:
        ValueError: there are fewer.
    """
    outputs = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(outputs) < len(labels):
        raise ValueError(f"the model has {len(outputs)} output(s) for {len(labels)} label(s): expected one for each")
    return outputs[: len(labels)]
