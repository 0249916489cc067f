"""The coder of JAX arrays: stored in host memory, restored to the devices of the live arrays."""

from __future__ import annotations

from typing import Any

import jax  # type: ignore[import-not-found, unused-ignore]
import numpy

from ..arrays.jax_arrays import to_device, to_host
from ..codec import Stored, register
from .numpy_coder import NumpyCoder

__all__ = ["JaxCoder"]


class JaxCoder(NumpyCoder):
    """Stores replicated ``jax.Array`` values. Arrays that are sharded over hosts are refused."""

    def encode(self, array: Any) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        return super().encode(numpy.asarray(to_host(array)))

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`~elasticrun.codec.Coder`."""
        return to_device(super().decode(meta, data, None), live)


register(type(jax.numpy.zeros(0)), "jax", JaxCoder())
