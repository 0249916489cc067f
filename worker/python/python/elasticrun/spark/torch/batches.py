"""Converts batches to tensors with the shapes and types of the estimator's arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["TensorSpec", "outputs_of"]


@dataclass(frozen=True)
class TensorSpec:
    """Names, shapes and types of the tensors of some columns, one tensor for each.

    Attributes:
        names: names of the columns.
        shapes: shapes of the tensors, with -1 for the number of rows. Default: (rows, values in a row), for a label the shape
            of the model's output if it has the same number of values.
        dtypes: types of the tensors. Default: float32.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] | None = None
    dtypes: tuple[torch.dtype, ...] | None = None

    @classmethod
    def from_arguments(
        cls, names: Sequence[str], shapes: Sequence[Any] | None, dtypes: Sequence[torch.dtype] | None, keyword: str
    ) -> TensorSpec:
        """Checks a user's arguments. ``keyword`` is the first word of their names.

        Raises:
            ValueError: the number of shapes or types differs from that of columns.
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
        """Checks the shapes, because a shape with another number of values would mix rows.

        Args:
            widths: number of values in a row of each column; None for single values.
            keyword: the first word of the argument's name.

        Raises:
            ValueError: a shape has another number of values.
        """
        for name, shape in zip(self.names, self.shapes or (), strict=False):
            values = widths[name] or 1
            if shape[:1] == (-1,) and math.prod(shape[1:]) != values:
                raise ValueError(
                    f"{keyword}_shapes: column {name!r} has {values} value(s) in a row, {list(shape)} takes {math.prod(shape[1:])}"
                )

    def tensors(self, batch: Mapping[str, Any], device: torch.device | None = None) -> list[torch.Tensor]:
        """The tensors of a batch of NumPy arrays.

        Raises:
            ValueError: a column does not match its shape.
        """
        tensors = []
        for index, name in enumerate(self.names):
            dtype = torch.float32 if self.dtypes is None else self.dtypes[index]
            tensor = torch.as_tensor(batch[name]).to(device=device, dtype=dtype)
            if self.shapes is None:
                shape: tuple[int, ...] = (-1, 1) if tensor.dim() == 1 else tuple(tensor.shape)
            else:
                shape = self.shapes[index]
            tensors.append(_shaped(tensor, shape, name))
        return tensors


def _shaped(tensor: torch.Tensor, shape: tuple[int, ...], name: str) -> torch.Tensor:
    rows = len(tensor)
    # reshape() cannot infer the number of rows of an empty tensor.
    wanted = (0, *shape[1:]) if rows == 0 and shape[:1] == (-1,) else shape
    try:
        return tensor.reshape(wanted)
    except RuntimeError:
        raise ValueError(f"column {name!r}: {tuple(tensor.shape)} cannot have the shape {list(shape)}") from None


def outputs_of(given: Any, labels: Sequence[str]) -> list[torch.Tensor]:
    """The outputs of a model, one tensor for each label.

    Raises:
        ValueError: there are fewer outputs than labels.
    """
    outputs = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(outputs) < len(labels):
        raise ValueError(f"the model has {len(outputs)} output(s) for {len(labels)} label(s): expected one for each")
    return outputs[: len(labels)]
