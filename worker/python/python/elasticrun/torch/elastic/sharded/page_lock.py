"""Page-locked memory of commits, into which a CUDA device copies by itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from elasticrun._native import CommitBuffer

_log = logging.getLogger("elasticrun")


class PageLock:
    """Page-locks the buffers of this process's commits, each at the first commit in it.

    The lock belongs to pages: it is renewed for a buffer whose pages have changed.
    """

    def __init__(self) -> None:
        self._locked: dict[int, CommitBuffer] = {}
        self._refused = False

    def lock(self, buffer: CommitBuffer) -> bool:
        """Locks the pages of a buffer, unless they are locked. Takes about 0.2 s for each GB.

        Returns False if the system refuses. Copies to it then wait for each other, and are slower.
        """
        index, address, nbytes, _ = buffer
        known = self._locked.get(index)
        if known == buffer:
            return True
        if self._refused:
            return False
        runtime: Any = torch.cuda.cudart()
        if known is not None:
            # It has nothing to say: the pages may be gone.
            runtime.cudaHostUnregister(known[1])
            del self._locked[index]
        error = int(runtime.cudaHostRegister(address, nbytes, 0))
        if error != 0:
            self._refused = True
            _log.warning(
                "the memory for commits cannot be page-locked (CUDA error %d), so commits of CUDA tensors take longer",
                error,
            )
            return False
        self._locked[index] = buffer
        return True
