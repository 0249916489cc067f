"""Forms: how a column becomes an array where its type leaves a choice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Fill", "Form", "Image", "Nest", "Pack", "Pad", "check"]


@dataclass(frozen=True)
class Fill:
    """A value in place of null. The column then has one dtype in all batches.

    Args:
        value: of the column's type. For dates and times a ``numpy.datetime64`` or ``numpy.timedelta64``.
        mask: name of a further column, of bool: whether the row has a value.
    """

    value: object
    mask: str | None = None


@dataclass(frozen=True)
class Pad:
    """Lists of any length as one array of shape (rows, length), or (rows, length, size) for lists of fixed-size lists.

    Args:
        value: stands where a row has no value, and in place of null.
        length: values of each row; by default those of the longest row of the batch.
        multiple_of: rounds the length up, so that few shapes occur.
        truncate: whether longer rows lose their end. Without it they are a ``DataError``.
        side: where padding is, "right" or "left".
        mask: name of a further column, bool of shape (rows, length): which values are those of the row.
    """

    value: object = 0
    length: int | None = None
    multiple_of: int = 1
    truncate: bool = False
    side: Literal["right", "left"] = "right"
    mask: str | None = None

    def __post_init__(self) -> None:
        if self.length is not None and not 0 <= self.length < 1 << 31:
            raise ValueError(f"Pad(length={self.length}): must be from 0 to 2**31 - 1")
        if not 1 <= self.multiple_of < 1 << 31:
            raise ValueError(f"Pad(multiple_of={self.multiple_of}): must be from 1 to 2**31 - 1")
        if not isinstance(self.truncate, bool):
            raise TypeError(f"Pad(truncate={self.truncate!r}): must be True or False, and length= says to what length")
        if self.side not in ("right", "left"):
            raise ValueError(f"Pad(side={self.side!r}): must be 'right' or 'left'")


@dataclass(frozen=True)
class Pack:
    """Lists of any length, or byte strings, as the values of all rows side by side, without a copy.

    Args:
        offsets: name of a further column, int64 of shape (rows + 1): row r has the values ``offsets[r]:offsets[r + 1]``. By
            default the name of the column and ``.offsets``.
    """

    offsets: str | None = None


@dataclass(frozen=True)
class Nest:
    """Lists of any length as nested tensors of torch (layout ``torch.jagged``), without a copy. In NumPy an array of arrays."""


@dataclass(frozen=True)
class Image:
    """PNG and JPEG images as one array of uint8, of shape (rows, height, width, 3), or (rows, height, width) in gray. For binary
    columns, and the structures with a field ``bytes`` that Hugging Face stores.

    Images of another size are resized by bilinear interpolation over the pixels that a new one covers. Several threads decode
    the images of a batch. Null is black. Orientation tags of JPEG are not applied.

    Args:
        size: height and width.
        mode: "RGB" or "L" (gray).
        crop: whether the sides of images of another aspect ratio are cut off. Without it they are distorted.
        on_error: "raise" a ``DataError`` for an image that cannot be decoded, or "black" and counted in
            :attr:`ParquetDataset.undecoded`.
        mask: name of a further column, of bool: whether the row has an image.
    """

    size: tuple[int, int]
    mode: Literal["RGB", "L"] = "RGB"
    crop: bool = False
    on_error: Literal["raise", "black"] = "raise"
    mask: str | None = None

    def __post_init__(self) -> None:
        if len(self.size) != 2 or min(self.size) < 1 or max(self.size) > 1 << 14:
            raise ValueError(f"Image(size={self.size}): must be (height, width), each from 1 to 16384")
        if self.mode not in ("RGB", "L"):
            raise ValueError(f"Image(mode={self.mode!r}): must be 'RGB' or 'L'")
        if self.on_error not in ("raise", "black"):
            raise ValueError(f"Image(on_error={self.on_error!r}): must be 'raise' or 'black'")


Form: TypeAlias = "Fill | Image | Pad | Pack | Nest"


def check(forms: Mapping[str, Form] | None, names: Mapping[str, object]) -> dict[str, Form]:
    """The forms of a data set with these columns.

    Raises:
        TypeError: a form is none.
        ValueError: there is no such column, or the name of a further column is taken.
    """
    taken = set(names)
    for name, form in (forms or {}).items():
        if not isinstance(form, (Fill, Image, Pad, Pack, Nest)):
            raise TypeError(f"forms[{name!r}]={form!r}: must be a Fill, Image, Pad, Pack or Nest")
        # A field of a structure is named behind the column.
        if name not in names and name.partition(".")[0] not in names:
            raise ValueError(f"forms: there is no column {name!r}; there are: {', '.join(names)}")
        for further in further_names(name, form):
            if further in taken:
                raise ValueError(f"forms[{name!r}]: the name {further!r} is that of another column")
            taken.add(further)
    return dict(forms or {})


def further_names(name: str, form: Form | None) -> list[str]:
    """The names of the columns that a form adds."""
    if isinstance(form, Pack):
        return [form.offsets or f"{name}.offsets"]
    if isinstance(form, (Fill, Image, Pad)) and form.mask is not None:
        return [form.mask]
    return []
