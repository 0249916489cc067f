"""Page-locked memory of commits, into which a CUDA device copies by itself."""

from __future__ import annotations

import contextlib
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
        #: The layout of the commits whose buffers are locked.
        self._layout = 0
        self._refused = False

    def lock(self, buffer: CommitBuffer) -> bool:
        """Locks the pages of a buffer, unless they are locked. Takes about 0.2 s for each GB.

        Returns False if the system refuses. Copies to it then wait for each other, and are slower.
        """
        index, address, nbytes, _ = buffer
        if self._locked.get(index) == buffer:
            return True
        self._unlock(index)
        if self._refused:
            return False
        runtime: Any = torch.cuda.cudart()
        error = int(runtime.cudaHostRegister(address, nbytes, 0))
        if error != 0:
            self._refused = True
            _clear_error()
            _log.warning(
                "the memory for commits cannot be page-locked (CUDA error %d), so commits of CUDA tensors take longer",
                error,
            )
            return False
        self._locked[index] = buffer
        return True

    def expect(self, layout: int) -> None:
        """Unlocks all pages if commits have another layout than those before, so that their buffers may move.

        Args:
            layout: hash of the layout of the next commit.
        """
        if layout != self._layout:
            self._layout = layout
            for index in list(self._locked):
                self._unlock(index)

    def _unlock(self, index: int) -> None:
        known = self._locked.pop(index, None)
        if known is None:
            return
        runtime: Any = torch.cuda.cudart()
        if int(runtime.cudaHostUnregister(known[1])) != 0:
            # The pages are gone, so there is nothing to unlock.
            _clear_error()


def _clear_error() -> None:
    """Takes the last error from the CUDA runtime, which torch would report for the next kernel."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device="cuda").add_(1)
