"""Keys and values in memory: NumPy arrays and torch tensors as they are, anything else as a new array."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from ..arrays.memory import REDUCIBLE

if TYPE_CHECKING:
    from .._native import Buffer

__all__ = ["Source", "ValueType", "is_tensor", "keys_of", "lens_of"]

#: Names of the types of values, by their short ones.
_LONG = {short: long for long, short in REDUCIBLE.items()}


@dataclass(frozen=True)
class Source:
    """Contiguous elements, and the object that keeps them alive."""

    array: Any
    buffer: Buffer
    count: int


def _numpy_source(array: numpy.ndarray[Any, Any]) -> Source:
    return Source(array, (array.__array_interface__["data"][0], array.nbytes), array.size)


def _torch_source(tensor: Any) -> Source:
    count = tensor.numel()
    return Source(tensor, (tensor.data_ptr() if count else 0, count * tensor.element_size()), count)


def is_tensor(array: object) -> bool:
    """Whether it is a tensor of torch, which is not imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _plain_array(values: Any, dtype: numpy.dtype[Any]) -> numpy.ndarray[Any, Any]:
    """A contiguous and aligned array: the given one, if it is that."""
    return numpy.require(values, dtype, ["C", "A"])


def _plain(tensor: Any, what: str) -> Any:
    """The tensor without its history, contiguous.

    Raises:
        TypeError: it is not in host memory.
    """
    if tensor.device.type != "cpu":
        raise TypeError(f"{what} are on {tensor.device}: pass tensor.cpu()")
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class ValueType:
    """The type of the values of an app."""

    def __init__(self, dtype: object) -> None:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype).removeprefix("torch.")
        name = _LONG.get(name, name)
        if name not in REDUCIBLE:
            raise TypeError(f"{dtype!r} is no type of values: use one of {', '.join(REDUCIBLE)}")
        #: NumPy's name of the type, such as ``float32``.
        self.name = name
        #: Its name in the native module, such as ``f32``.
        self.code = REDUCIBLE[name]

    def source(self, values: Any) -> Source:
        """Values to send.

        Raises:
            TypeError: they are of another type.
        """
        if is_tensor(values):
            self._check(str(values.dtype).removeprefix("torch."), "values are")
            return _torch_source(_plain(values, "values"))
        if not isinstance(values, (numpy.ndarray, numpy.generic)):
            return _numpy_source(_plain_array(values, self._numpy()))
        self._check(values.dtype.name, "values are")
        return _numpy_source(_plain_array(values, values.dtype.newbyteorder("=")))

    def target(self, out: Any, like: Any, shape: tuple[int, ...], count: int) -> Source:
        """Memory for a result: ``out``, or a new array of ``shape``, a tensor if ``like`` is one.

        Raises:
            TypeError: ``out`` is of another type, or no array.
            ValueError: ``out`` has another number of elements, is not contiguous or may not be written.
        """
        if out is None:
            if is_tensor(like):
                torch = sys.modules["torch"]
                return _torch_source(torch.empty(shape, dtype=getattr(torch, self.name)))
            return _numpy_source(numpy.empty(shape, self._numpy()))
        if is_tensor(out):
            self._check(str(out.dtype).removeprefix("torch."), "out is")
            plain = out.detach()
            if plain.device.type != "cpu" or not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
                raise ValueError("out is not a contiguous tensor in host memory")
            source = _torch_source(plain)
        elif isinstance(out, numpy.ndarray):
            self._check(out.dtype.name, "out is")
            if not (out.flags.c_contiguous and out.flags.writeable and out.flags.aligned and out.dtype.isnative):
                raise ValueError("out is not a contiguous array that may be written")
            source = _numpy_source(out)
        else:
            raise TypeError(f"out is a {type(out).__name__}: pass a NumPy array or a tensor of torch")
        if source.count != count:
            raise ValueError(f"out has {source.count} elements and the result has {count}")
        # What the caller gave, and no alias of it.
        return Source(out, source.buffer, count)

    def received(self, data: bytearray) -> Any:
        """The values in memory that is filled, as a NumPy array."""
        return numpy.frombuffer(data, self._numpy())

    def _check(self, name: str, what: str) -> None:
        if name != self.name:
            raise TypeError(f"{what} {name}, and this app has {self.name}: convert them")

    def _numpy(self) -> numpy.dtype[Any]:
        if self.name == "bfloat16":
            dtypes = sys.modules.get("ml_dtypes")
            if dtypes is None:
                raise TypeError(
                    "NumPy has no bfloat16: pass tensors of torch as keys, values and out, or import ml_dtypes"
                )
            brain: numpy.dtype[Any] = numpy.dtype(dtypes.bfloat16)
            return brain
        return numpy.dtype(self.name)


def keys_of(keys: Any) -> Source:
    """Keys: ``uint64`` arrays and non-negative ``int64`` ones are not copied, other integers are.

    Raises:
        TypeError: they are no integers.
        ValueError: the first or the last one is negative.
    """
    if is_tensor(keys):
        torch = sys.modules["torch"]
        tensor = _plain(keys, "keys")
        if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"keys are {tensor.dtype}: pass integers")
        if str(tensor.dtype) not in ("torch.int64", "torch.uint64"):
            tensor = tensor.to(torch.int64)
        if tensor.dtype == torch.int64:
            _refuse_negative(tensor.reshape(-1), int)
        return _torch_source(tensor)
    array = numpy.asarray(keys)
    if array.size == 0:
        array = array.astype(numpy.uint64)
    if array.dtype.kind not in "ui" and not isinstance(keys, numpy.ndarray):
        array = _large_integers(keys, array.dtype.name)
    if array.dtype.kind not in "ui":
        raise TypeError(f"keys are {array.dtype.name}: pass integers")
    if array.dtype.kind == "i":
        _refuse_negative(array.reshape(-1), int)
    if array.dtype.name != "int64" or not array.dtype.isnative:
        array = array.astype(numpy.uint64, copy=False)
    return _numpy_source(_plain_array(array, array.dtype))


def _large_integers(keys: Any, found: str) -> numpy.ndarray[Any, Any]:
    """A list of integers for which NumPy has chosen floats or objects, as some of them need 64 bits without a sign.

    Raises:
        TypeError: one is no integer.
        ValueError: one is negative or too large.
    """
    try:
        return numpy.array([operator.index(key) for key in keys], numpy.uint64)
    except TypeError:
        raise TypeError(f"keys are {found}: pass integers") from None
    except OverflowError:
        raise ValueError("keys are from 0 to 2**64 - 1") from None


def _refuse_negative(keys: Any, number: Callable[[Any], int]) -> None:
    """Refuses negative keys. Keys are ascending, or refused later, so all negative ones but the ends are noticed there."""
    if len(keys):
        for key in (number(keys[0]), number(keys[-1])):
            if key < 0:
                raise ValueError(f"key {key} is negative: keys are from 0 to 2**64 - 1")


def lens_of(lens: Any) -> Source:
    """The number of values of each key, as ``uint32``.

    Raises:
        TypeError: they are no integers.
        ValueError: one is negative or too large.
    """
    array = numpy.asarray(lens.numpy() if is_tensor(lens) else lens)
    if array.dtype.kind not in "ui" and array.size:
        raise TypeError(f"lens are {array.dtype.name}: pass integers")
    if array.size and (array.min() < 0 or array.max() >= 2**32):
        raise ValueError("lens are from 0 to 2**32 - 1")
    return _numpy_source(_plain_array(array, numpy.dtype(numpy.uint32)))
