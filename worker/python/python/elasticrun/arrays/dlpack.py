"""Arrays of libraries that exchange memory through DLPack."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .memory import Memory

if TYPE_CHECKING:
    from .numpy_arrays import NumpyFamily

__all__ = ["DlpackFamily"]

#: DLPack device types whose memory the CPU can read: host memory, pinned or not.
_HOST = (1, 3)


class DlpackFamily:
    """Uses NumPy, which must be installed. The library's ``from_dlpack`` converts results back."""

    def memory(self, array: Any) -> Memory | None:
        """See :class:`~elasticrun.arrays.Family`."""
        return _numpy().memory(_view(array))

    def writable(self, array: Any) -> bool:
        """See :class:`~elasticrun.arrays.Family`."""
        return _numpy().writable(_view(array))

    def copy(self, array: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return _numpy().copy(_view(array))

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return _numpy().empty(_view(like), shape)

    def result(self, filled: Any, like: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        namespace = getattr(like, "__array_namespace__", None)
        library = namespace() if namespace else sys.modules[type(like).__module__.partition(".")[0]]
        return library.from_dlpack(filled)

    def assign(self, array: Any, source: Any) -> None:
        """See :class:`~elasticrun.arrays.Family`."""
        _numpy().assign(_view(array), source)


def _view(array: Any) -> Any:
    import numpy

    if isinstance(array, numpy.ndarray):
        return array
    device, _ = array.__dlpack_device__()
    if int(device) not in _HOST:
        raise TypeError(
            f"a {type(array).__qualname__} on a device cannot be used here: copy it to the host first, or use"
            " the module of its framework (elasticrun.torch)"
        )
    return numpy.from_dlpack(array)


def _numpy() -> NumpyFamily:
    try:
        from .numpy_arrays import NumpyFamily
    except ImportError:
        raise TypeError("arrays with DLPack need NumPy: pip install numpy") from None
    return NumpyFamily()
