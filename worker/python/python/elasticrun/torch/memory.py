"""Prepares tensors for the collectives, which need contiguous elements in host memory."""

from __future__ import annotations

import torch

#: Names of the element types that the collectives can combine. bool is sent as bytes of 0 and 1.
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
    """The name of ``dtype`` in the collectives.

    Raises:
        TypeError: the collectives cannot combine this type.
    """
    try:
        return ELEMENTS[dtype]
    except KeyError:
        allowed = ", ".join(sorted(str(known).removeprefix("torch.") for known in ELEMENTS))
        raise TypeError(f"tensors of {dtype} cannot be combined: use one of {allowed}") from None


def same_type(call: str, source: torch.Tensor, target: torch.Tensor) -> None:
    """Checks that source and target of ``call`` have the same type.

    Raises:
        TypeError: the types differ.
    """
    if source.dtype != target.dtype:
        raise TypeError(f"{call} of a tensor of {source.dtype} into one of {target.dtype}: they must be of one type")


def require_tensor(given: object, call: str) -> None:
    """Checks that ``call`` is given a tensor.

    Raises:
        TypeError: ``given`` is another object, or None.
    """
    if not isinstance(given, torch.Tensor):
        what = "None" if given is None else f"a {type(given).__name__}"
        raise TypeError(f"{call} takes a torch.Tensor, not {what}")


def scale(tensor: torch.Tensor, factor: float) -> None:
    """Multiplies in place. Integers are multiplied in 64-bit floats and rounded towards zero."""
    with torch.no_grad():
        if tensor.is_floating_point() or tensor.is_complex():
            tensor.mul_(factor)
        else:
            tensor.copy_((tensor.double() * factor).trunc())


def refuse_sparse(tensor: torch.Tensor, call: str) -> None:
    """Checks that ``call`` is given a tensor, and that the tensor is dense.

    Raises:
        TypeError: it is no tensor.
        NotImplementedError: it is sparse.
    """
    require_tensor(tensor, call)
    if tensor.layout is not torch.strided:
        raise NotImplementedError(f"{call} of a sparse tensor ({tensor.layout}) is not offered: pass tensor.to_dense()")


class Buffer:
    """The elements of a tensor in contiguous host memory: the tensor itself, or a copy.

    CUDA memory is copied to page-locked memory, and back in the stream in which the copy was made: what that stream has to do
    before comes first. ``load=False`` leaves a copy uninitialised, for tensors that are only written.
    """

    __slots__ = ("_stream", "host", "tensor")

    def __init__(self, tensor: torch.Tensor, *, load: bool = True) -> None:
        self.tensor = tensor.detach()
        # The memory of a conjugate or negative view contains other values than the tensor.
        plain = not self.tensor.is_conj() and not self.tensor.is_neg()
        if tensor.device.type == "cpu" and self.tensor.is_contiguous() and plain:
            self.host = self.tensor
            return
        pinned = tensor.device.type == "cuda"
        self._stream = torch.cuda.current_stream(tensor.device) if pinned else None
        self.host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        if load:
            self.host.copy_(self.tensor)

    @property
    def copied(self) -> bool:
        """Whether the elements are a copy, so that :meth:`store` is needed."""
        return self.host is not self.tensor

    @property
    def bytes(self) -> tuple[int, int]:
        """Address and number of bytes."""
        return self.host.data_ptr(), self.host.numel() * self.host.element_size()

    def store(self) -> None:
        """Copies the elements back to the tensor, if they are a copy."""
        if self.copied:
            # Without a stream this does nothing.
            with torch.no_grad(), torch.cuda.stream(self._stream):
                self.tensor.copy_(self.host)
