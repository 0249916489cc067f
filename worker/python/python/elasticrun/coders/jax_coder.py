"""JAX arrays: their memory on the host, and back to the devices that the live ones are on."""

from __future__ import annotations

from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy

from ..arrays.jax_arrays import to_device, to_host
from ..codec import Stored, register
from .numpy_coder import NumpyCoder

__all__ = ["JaxCoder"]


class JaxCoder(NumpyCoder):
    """Replicated ``jax.Array``; one that is sharded over hosts is refused."""

    def encode(self, array: Any) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        return super().encode(numpy.asarray(to_host(array)))

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`~elasticrun.codec.Coder`."""
        return to_device(super().decode(meta, data, None), live)


register(type(jax.numpy.zeros(0)), "jax", JaxCoder())
