"""Conversion between lists of tensors and flat memory, with checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def check_count(call: str, tensors: Sequence[torch.Tensor], size: int) -> None:
    """Raises ValueError unless there is a tensor for each rank."""
    if len(tensors) != size:
        raise ValueError(f"{call} of {size} ranks got a list of {len(tensors)} tensors")


def check_list(call: str, tensors: Sequence[torch.Tensor], like: torch.Tensor, size: int) -> None:
    """Raises ValueError unless there is a tensor of ``like``'s size and type for each rank."""
    check_count(call, tensors, size)
    for rank, tensor in enumerate(tensors):
        if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
            raise ValueError(
                f"{call}: the tensor for rank {rank} is {tuple(tensor.shape)} {tensor.dtype}, "
                f"this rank's own is {tuple(like.shape)} {like.dtype}: they must be of one size and type"
            )


def check_size(call: str, tensor: torch.Tensor, count: int) -> None:
    """Raises ValueError unless ``tensor`` has ``count`` elements."""
    if tensor.numel() != count:
        raise ValueError(
            f"{call}: a tensor of {tensor.numel()} elements {tuple(tensor.shape)} was given, {count} are needed"
        )


def pack(tensors: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Concatenates the elements of all ``tensors``, in memory with the type and device of ``like``."""
    flat = like.new_empty(sum(tensor.numel() for tensor in tensors))
    offset = 0
    with torch.no_grad():
        for tensor in tensors:
            flat.narrow(0, offset, tensor.numel()).copy_(tensor.detach().reshape(-1))
            offset += tensor.numel()
    return flat


def unpack(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Callable[[], None]:
    """A function that copies the elements of ``flat`` to ``tensors``."""

    def copy() -> None:
        offset = 0
        with torch.no_grad():
            for tensor in tensors:
                part = flat.narrow(0, offset, tensor.numel())
                tensor.detach().copy_(part.view(tensor.shape))
                offset += tensor.numel()

    return copy


def row_splits(side: str, tensor: torch.Tensor, splits: Sequence[int] | None, size: int) -> list[int]:
    """Counts of elements for each rank, from counts of rows. None or empty: equal counts.

    Raises:
        ValueError: the counts do not match the tensor.
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    wide = tensor.numel() // rows if rows else 0
    if not splits:
        if rows % size:
            raise ValueError(f"alltoall: the {side} has {rows} rows, which {size} ranks cannot share: give splits")
        return [rows // size * wide] * size
    if len(splits) != size:
        raise ValueError(f"alltoall: {len(splits)} {side} splits for {size} ranks: give one for each")
    if any(split < 0 for split in splits) or sum(splits) != rows:
        raise ValueError(f"alltoall: the {side} splits {list(splits)} are {sum(splits)} rows, the tensor has {rows}")
    return [split * wide for split in splits]
