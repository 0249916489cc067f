"""The coders of torch tensors, which store their memory unchanged."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import zlib
from typing import Any

import torch

from elasticrun.codec import Stored, register
from elasticrun.errors import StateError

Meta = tuple[str, tuple[int, ...], str, bool, bool]

_ORDERS = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
}


class StateTensor:
    """A tensor of the state of a module or an optimizer, into which a restore copies the stored values.

    A decoded tensor may refer to memory that is valid only until the state is restored. Call :meth:`release` then.

    Attributes:
        tensor: the tensor.
        trained: whether it is a parameter of a module, which is the same in all workers.
    """

    __slots__ = ("_memory", "tensor", "trained")

    def __init__(self, tensor: torch.Tensor, memory: object = None, trained: bool = False) -> None:
        self.tensor = tensor
        self.trained = trained
        #: The object that tensors in borrowed memory refer to.
        self._memory = memory

    def release(self) -> bool:
        """Drops the reference to the memory. Returns whether no other tensor refers to it."""
        self.tensor = torch.empty(0)
        memory, self._memory = self._memory, None
        if memory is None or sys.getrefcount(memory) <= _UNSHARED:
            return True
        # A reference cycle may still refer to the memory.
        gc.collect()
        return sys.getrefcount(memory) <= _UNSHARED


#: Result of sys.getrefcount() for an object that only one variable refers to.
_UNSHARED = 2


def refuse_sharded(tensor: object, name: str) -> None:
    """Raises StateError if ``tensor`` is a shard of a larger one (FSDP), of which no worker has all elements."""
    if type(tensor).__name__ in ("DTensor", "ShardedTensor"):
        raise StateError(
            f"{name} is a {type(tensor).__name__}: each worker holds a shard, and a state is replicated. "
            "Use ShardedState, whose build() makes the model in each round, or DistributedDataParallel"
        )


def fill(tensor: torch.Tensor, data: memoryview) -> None:
    """Copies ``data`` to the elements of ``tensor``, which are dense and in host memory."""
    nbytes = tensor.numel() * tensor.element_size()
    if len(data) != nbytes:
        raise StateError(f"a tensor of {nbytes} bytes was stored with {len(data)}")
    if nbytes:
        target = (ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())
        memoryview(target).cast("B")[:] = data.cast("B")


def _stored(tensor: torch.Tensor) -> Stored | None:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    refuse_sharded(tensor, "a tensor")
    order = next((o for o, f in _ORDERS.items() if _lies(tensor, f)), "contiguous")
    host = tensor.detach()
    if host.is_conj() or host.is_neg():
        host = host.resolve_conj().resolve_neg()
    host = to_host(host).contiguous(memory_format=_ORDERS[order])
    meta: Meta = (
        str(tensor.dtype).removeprefix("torch."),
        tuple(tensor.shape),
        order,
        tensor.requires_grad and tensor.is_leaf,
        isinstance(tensor, torch.nn.Parameter),
    )
    return Stored(meta, host.data_ptr(), host.numel() * host.element_size(), host)


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in host memory. CUDA memory is copied to page-locked memory."""
    if tensor.device.type == "cpu":
        return tensor
    pinned = tensor.device.type == "cuda"
    host = torch.empty_like(tensor, device="cpu", pin_memory=pinned)
    host.copy_(tensor)
    return host


def _lies(tensor: torch.Tensor, order: torch.memory_format) -> bool:
    if order is torch.channels_last and tensor.dim() != 4:
        return False
    if order is torch.channels_last_3d and tensor.dim() != 5:
        return False
    return tensor.is_contiguous(memory_format=order)


def _empty(meta: Meta) -> torch.Tensor:
    dtype, shape, order, _, _ = meta
    return torch.empty(shape, dtype=getattr(torch, dtype), memory_format=_ORDERS[order])


def described(meta: Meta) -> str:
    """The type and shape of a tensor."""
    return f"{meta[0]}{list(meta[1])}"


class TensorCoder:
    """Stores dense tensors of any device. They are restored as new tensors in host memory."""

    def describe(self, meta: Meta) -> tuple[str, bool]:
        """See :class:`~elasticrun.codec.DescribingCoder`."""
        return described(meta), False

    def encode(self, array: torch.Tensor) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        return _stored(array)

    def decode(self, meta: Meta, data: memoryview, live: Any | None) -> torch.Tensor:
        """See :class:`~elasticrun.codec.Coder`."""
        tensor = _empty(meta)
        fill(tensor, data)
        if meta[4]:
            return torch.nn.Parameter(tensor, requires_grad=meta[3])
        return tensor.requires_grad_(meta[3])


class StateTensorCoder:
    """Stores :class:`StateTensor` values. They are restored as views of the committed memory, without a copy."""

    def encode(self, array: StateTensor) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        stored = _stored(array.tensor)
        if stored is None:
            return None
        # Tied weights are one tensor with several names, and are stored once.
        meta = stored.meta, array.trained
        return Stored(meta, stored.address, stored.nbytes, stored.owner, shared=True)

    def describe(self, meta: tuple[Meta, bool]) -> tuple[str, bool]:
        """See :class:`~elasticrun.codec.DescribingCoder`."""
        return described(meta[0]), meta[1]

    def digest(self, data: memoryview) -> int:
        """See :class:`~elasticrun.codec.DescribingCoder`."""
        return zlib.crc32(data)

    def sketch(self, meta: tuple[Meta, bool], data: memoryview) -> list[float]:
        """See :class:`~elasticrun.codec.DescribingCoder`."""
        part = self.decode(meta, data, None)
        sketch = _sketch(part.tensor)
        part.release()
        return sketch

    def decode(self, meta: tuple[Meta, bool], data: memoryview, live: Any | None) -> StateTensor:
        """See :class:`~elasticrun.codec.Coder`."""
        (dtype, shape, order, _, _), trained = meta
        strides = torch.empty(shape, device="meta").to(memory_format=_ORDERS[order]).stride()
        kind = getattr(torch, dtype)
        if not len(data):
            return StateTensor(_empty(meta[0]), trained=trained)
        # Created from an address: torch would refer to the object behind the view, whose reference count says nothing.
        memory = (ctypes.c_ubyte * len(data)).from_address(_address(data))
        flat = torch.frombuffer(memory, dtype=torch.uint8).view(kind)
        return StateTensor(flat.as_strided(shape, strides), memory, trained)


#: Number of elements that a sketch processes at once, and number of sums besides the norm.
_BLOCK, _SUMS = 1 << 16, 8


def _sketch(tensor: torch.Tensor) -> list[float]:
    """The norm of ``tensor``, and sums of its elements with pseudo-random signs that are the same in all workers.

    The distance of two sketches estimates the distance of the tensors.
    """
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (_SUMS, _BLOCK), generator=generator).float() * 2 - 1
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.reshape(-1)
    squares, sums = 0.0, torch.zeros(_SUMS, dtype=torch.float64)
    for start in range(0, flat.numel(), _BLOCK):
        block = flat[start : start + _BLOCK].float()
        block_signs = torch.randint(0, 2, (_SUMS,), generator=generator) * 2 - 1
        sums += block_signs * (signs[:, : block.numel()] @ block)
        squares += block.double().square().sum().item()
    return [math.sqrt(squares), *sums.tolist()]


class _Buffer(ctypes.Structure):
    """The beginning of Py_buffer in CPython's stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _address(data: memoryview) -> int:
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(buffer), 0)
    address: int = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


register(torch.Tensor, "torch", TensorCoder())
register(torch.nn.Parameter, "torch", TensorCoder())
register(StateTensor, "torch-part", StateTensorCoder())
