"""The coder of arrays of libraries with DLPack and a ``from_dlpack`` function."""

from __future__ import annotations

import importlib
from typing import Any

from ..arrays.dlpack import DlpackFamily
from ..codec import Stored, register

__all__ = ["DlpackCoder"]


class DlpackCoder:
    """Stores arrays in host memory. An array that DLPack does not return as the same type is pickled like other objects."""

    def encode(self, array: Any) -> Stored | None:
        """See :class:`~elasticrun.codec.Coder`."""
        family = DlpackFamily()
        try:
            if type(family.result(array, array)) is not type(array):
                return None
            memory = family.memory(array) or family.memory(family.copy(array))
        except Exception:
            # Each library raises its own errors for arrays that it does not export: gradients, devices, types.
            return None
        if memory is None:
            return None
        library = type(array).__module__.partition(".")[0]
        return Stored((library, memory.dtype, memory.shape), memory.address, memory.nbytes, (array, memory))

    def decode(self, meta: Any, data: memoryview, live: Any | None) -> Any:
        """See :class:`~elasticrun.codec.Coder`."""
        import numpy

        library, dtype, shape = meta
        family = DlpackFamily()
        stored = numpy.frombuffer(data, dtype).reshape(shape)
        if live is not None and family.writable(live):
            memory = family.memory(live)
            if memory is not None and (memory.dtype, memory.shape) == (dtype, shape):
                family.assign(live, stored)
                return live
        return importlib.import_module(library).from_dlpack(stored.copy())


register(None, "dlpack", DlpackCoder())
