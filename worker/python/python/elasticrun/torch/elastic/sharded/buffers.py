"""Host memory of local tensors, for copies from commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from elasticrun._native import Buffer

#: In place of a tensor that this worker has no part of.
_NOTHING = torch.empty(0, dtype=torch.uint8)


class HostBuffers:
    """The memory of local tensors that are to be written, or other memory for those that are not contiguous in host memory,
    with any contents until :meth:`write_back`.

    Args:
        tensors: tensors, of which each DTensor stands for its local part. None has no memory.
    """

    def __init__(self, tensors: Iterable[torch.Tensor | None]) -> None:
        self._locals: list[torch.Tensor] = []
        #: The memory for each of them, which may be its own.
        self._hosts: list[torch.Tensor] = []
        with torch.no_grad():
            for tensor in tensors:
                if tensor is None:
                    tensor = _NOTHING
                local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
                self._locals.append(local)
                self._hosts.append(_host(local))

    def buffers(self) -> list[Buffer]:
        """Address and bytes of each tensor, in order."""
        return [(host.data_ptr(), host.nbytes) for host in self._hosts]

    def write_back(self) -> None:
        """Copies what was written to other memory into the tensors."""
        with torch.no_grad():
            for local, host in zip(self._locals, self._hosts, strict=True):
                if host is not local:
                    local.copy_(host)


def _host(local: torch.Tensor) -> torch.Tensor:
    if local.device.type == "cpu" and local.is_contiguous():
        return local
    return torch.empty(local.shape, dtype=local.dtype, device="cpu")
