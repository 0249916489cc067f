"""Tensors as the collectives take them: contiguous elements in host memory."""

from __future__ import annotations

import torch

#: The collectives' name of each element type that they can combine. bool travels as bytes of 0 and 1.
ELEMENTS: dict[torch.dtype, str] = {
    torch.bool: "u8",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
}
for _wide, _name in (("uint16", "u16"), ("uint32", "u32"), ("uint64", "u64")):
    if hasattr(torch, _wide):  # torch >= 2.3
        ELEMENTS[getattr(torch, _wide)] = _name


def element(dtype: torch.dtype) -> str:
    """The collectives' name of ``dtype``.

    Raises:
        TypeError: values of this type cannot be combined.
    """
    try:
        return ELEMENTS[dtype]
    except KeyError:
        allowed = ", ".join(sorted(str(known).removeprefix("torch.") for known in ELEMENTS))
        raise TypeError(f"tensors of {dtype} cannot be combined: use one of {allowed}") from None


def same_type(call: str, source: torch.Tensor, target: torch.Tensor) -> None:
    """Says that ``call`` brings values to tensors of their own type only.

    Raises:
        TypeError: the tensors are of two types.
    """
    if source.dtype != target.dtype:
        raise TypeError(f"{call} of a tensor of {source.dtype} into one of {target.dtype}: they must be of one type")


def refuse_sparse(tensor: torch.Tensor, call: str) -> None:
    """Says that ``call`` takes dense tensors only.

    Raises:
        NotImplementedError: ``tensor`` is sparse.
    """
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"{call} of a sparse tensor ({tensor.layout}) is not offered: pass tensor.to_dense()")


class Buffer:
    """A tensor's elements in contiguous host memory, and the way back if they had to be copied there.

    Memory of an accelerator is copied through page-locked memory. ``load=False`` leaves a copy's
    elements as they come, for tensors that are only written.
    """

    __slots__ = ("host", "tensor")

    def __init__(self, tensor: torch.Tensor, *, load: bool = True) -> None:
        self.tensor = tensor.detach()
        # The memory of a conjugate or negative view holds other values.
        plain = not self.tensor.is_conj() and not self.tensor.is_neg()
        if tensor.device.type == "cpu" and self.tensor.is_contiguous() and plain:
            self.host = self.tensor
            return
        pinned = tensor.device.type == "cuda"
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        if load:
            self.host.copy_(self.tensor)

    @property
    def copied(self) -> bool:
        """Whether :meth:`store` has something to do."""
        return self.host is not self.tensor

    @property
    def bytes(self) -> tuple[int, int]:
        """Address and count of bytes."""
        return self.host.data_ptr(), self.host.numel() * self.host.element_size()

    def store(self) -> None:
        """Copies the elements back to the tensor, if they are a copy."""
        if self.copied:
            with torch.no_grad():
                self.tensor.copy_(self.host)
