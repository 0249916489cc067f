"""JAX arrays, which are immutable: copied to the host, and back to their devices."""

from __future__ import annotations

from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy

from .memory import Memory
from .numpy_arrays import NumpyFamily

__all__ = ["JaxFamily", "to_device", "to_host"]


def to_host(array: Any) -> numpy.ndarray[Any, Any]:
    """The elements of ``array`` in host memory, without a copy if they are there already.

    Raises:
        TypeError: parts of ``array`` are on other hosts.
    """
    if not array.is_fully_addressable:
        raise TypeError(
            f"an array of shape {array.shape} is sharded over several hosts: only replicated arrays are supported"
        )
    return numpy.asarray(array)


def to_device(host: numpy.ndarray[Any, Any], like: Any | None) -> Any:
    """An array with the elements of ``host``, on the devices of ``like``."""
    if like is None:
        return jax.numpy.array(host)
    # A copy, because `host` may be memory of a commit.
    return jax.device_put(jax.numpy.array(host), like.sharding)


class JaxFamily(NumpyFamily):
    """``jax.Array``, through NumPy."""

    def memory(self, array: Any) -> Memory | None:
        """See :class:`~elasticrun.arrays.Family`."""
        return super().memory(_host(array))

    def writable(self, array: Any) -> bool:
        """See :class:`~elasticrun.arrays.Family`."""
        return False

    def copy(self, array: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return super().copy(_host(array))

    def empty(self, like: Any, shape: tuple[int, ...]) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        return numpy.empty(shape, like.dtype)

    def result(self, filled: Any, like: Any) -> Any:
        """See :class:`~elasticrun.arrays.Family`."""
        same = filled.shape == like.shape
        return to_device(filled, like if same else None)

    def assign(self, array: Any, source: Any) -> None:
        """See :class:`~elasticrun.arrays.Family`."""
        raise TypeError("a JAX array cannot be changed in place")


def _host(array: Any) -> Any:
    return array if isinstance(array, numpy.ndarray) else to_host(array)
