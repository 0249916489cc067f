"""Tensors in a state: their memory as it is, once, from the tensor to the agent."""

from __future__ import annotations

import ctypes
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


class Part:
    """A tensor of a module or an optimizer, which takes over what was stored by copying it.

    After decoding it may lie in memory that is valid only until the state is restored.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def refuse_sharded(tensor: object, name: str) -> None:
    """Raises StateError if ``tensor`` holds a shard of a larger one (FSDP): no worker has all of it."""
    if type(tensor).__name__ in ("DTensor", "ShardedTensor"):
        raise StateError(
            f"{name} is a {type(tensor).__name__}: each worker holds a shard, and a state is replicated. "
            "Keep a full state dict (torch.distributed.checkpoint.state_dict), or DistributedDataParallel"
        )


def fill(tensor: torch.Tensor, data: memoryview) -> None:
    """Copies ``data`` over the elements of ``tensor``, which are dense and in memory of the host."""
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
    """The tensor in memory of the host; that of CUDA goes through page-locked memory."""
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


class TensorCoder:
    """Dense tensors of any device; they come back in memory of the host, as new ones."""

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


class PartCoder:
    """Parts: they come back as a look at the memory that is restored from, without a copy."""

    def encode(self, array: Part) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        return _stored(array.tensor)

    def decode(self, meta: Meta, data: memoryview, live: Any | None) -> Part:
        """See :class:`~elasticrun.codec.Coder`."""
        dtype, shape, order, _, _ = meta
        strides = torch.empty(shape, device="meta").to(memory_format=_ORDERS[order]).stride()
        kind = getattr(torch, dtype)
        if not len(data):
            return Part(_empty(meta))
        flat = _look(data).view(kind)
        return Part(flat.as_strided(shape, strides))


def _look(data: memoryview) -> torch.Tensor:
    """The bytes of ``data`` as a tensor; it is read only, which torch cannot say."""
    if not data.readonly:
        return torch.frombuffer(data, dtype=torch.uint8)
    address = _address(data)
    array = (ctypes.c_ubyte * len(data)).from_address(address)
    return torch.frombuffer(array, dtype=torch.uint8)


class _Buffer(ctypes.Structure):
    """The beginning of CPython's Py_buffer, part of its stable ABI."""

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
register(Part, "torch-part", PartCoder())
