"""Commits of a shard: the copies of its tensors, at once or while training goes on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.tensor import DTensor

from elasticrun.errors import StateError

from ..zero import local_optimizer
from .page_lock import PageLock

if TYPE_CHECKING:
    from elasticrun._native import OpenShard

#: A tensor of a shard: its index among those of the shard, and its local part.
Numbered = tuple[int, torch.Tensor]


class Guarded:
    """The tensors that only ``optimizer.step()`` changes: parameters of the optimizer, and its state.

    Args:
        optimizer: the optimizer.
        names: names of tensors by ``id()``, for errors.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
        found: list[Any] = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for entry in local_optimizer(optimizer).state.values():
            found += [value for value in entry.values() if isinstance(value, torch.Tensor)]
        self._ids = {id(tensor) for tensor in found}
        self._names = names
        #: The parts to copy, with the number of their changes.
        self._versions: list[tuple[str, torch.Tensor, int]] = []

    def takes(self, tensor: torch.Tensor, local: torch.Tensor) -> bool:
        """Whether a tensor is one of them. Its part is watched then."""
        if id(tensor) not in self._ids:
            return False
        self._versions.append((self._names.get(id(tensor), "a tensor"), local, local._version))
        return True

    def check(self) -> None:
        """Checks that none of the parts has changed since it was taken.

        Raises:
            StateError: one has, so a copy may have parts of both values.
        """
        for name, local, version in self._versions:
            if local._version != version:
                raise StateError(
                    f"{name} was changed while commit(async_=True) still copied it: until the next optimizer.step(), only"
                    " buffers may change. Commit without async_ where a program changes parameters by itself"
                )


class Writing:
    """A commit whose tensors are being copied. It counts once it is sealed. When this object is gone, nothing is copied any
    more.

    Args:
        opened: the commit.
        own: what each worker has for itself, which the commit has too.
    """

    def __init__(self, opened: OpenShard, own: bytes | None) -> None:
        self.opened = opened
        self.own = own
        #: Whether an optimizer may change the tensors.
        self._released = False
        self._guarded: Guarded | None = None
        #: Streams that copy, and the end of their copies.
        self._events: list[tuple[torch.device, torch.cuda.Event]] = []
        self._pid = os.getpid()
        #: Keeps the sources of copies alive.
        self._sources: list[torch.Tensor] = []

    def copy(self, tensors: Sequence[torch.Tensor | None], lock: PageLock, guarded: Guarded | None = None) -> None:
        """Begins to copy the tensors of the shard, in order. None is one without a part here.

        Args:
            tensors: tensors, of which each DTensor stands for its local part.
            lock: page-locks the memory for copies of CUDA tensors.
            guarded: tensors that may be copied later than now. All others are copied before this returns, or before what the
                current CUDA stream does next.
        """
        now: list[Numbered] = []
        later: list[Numbered] = []
        for index, tensor in enumerate(tensors):
            if tensor is None:
                continue
            local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
            is_later = guarded is not None and guarded.takes(tensor, local)
            # A copy of values that lie apart is the one that is written.
            (later if is_later and local.is_contiguous() else now).append((index, local))
        self._guarded = guarded
        try:
            self._copy_all(now, lock, behind=False)
            self._copy_all(later, lock, behind=True)
        except BaseException:
            # Nothing may be copied to memory that is used for something else.
            self.wait()
            raise

    def _copy_all(self, numbered: Sequence[Numbered], lock: PageLock, *, behind: bool) -> None:
        on_host = [each for each in numbered if each[1].device.type != "cuda"]
        on_devices: dict[torch.device, list[Numbered]] = {}
        for index, local in numbered:
            if local.device.type == "cuda":
                on_devices.setdefault(local.device, []).append((index, local))
        # Beside tensors of a device, those in host memory are a few numbers.
        self._copy_from_host(on_host, behind=behind and not on_devices)
        for device, on_device in on_devices.items():
            self._copy_from_device(device, on_device, lock, behind=behind)

    def _copy_from_host(self, numbered: Sequence[Numbered], *, behind: bool) -> None:
        hosts = [(index, local.to("cpu").contiguous()) for index, local in numbered]
        parts = [(index, (host.data_ptr(), host.nbytes)) for index, host in hosts]
        if behind and parts:
            self.opened.copy_behind(parts, hosts)
        else:
            self.opened.copy(parts)

    def _copy_from_device(
        self, device: torch.device, numbered: Sequence[Numbered], lock: PageLock, *, behind: bool
    ) -> None:
        lock.lock(self.opened.buffer)
        stream = current = torch.cuda.current_stream(device)
        if behind:
            stream = _side_stream(device)
            stream.wait_stream(current)
        places = self.opened.targets
        # A wait that sleeps leaves the processor to others.
        event = torch.cuda.Event(blocking=True)
        self._events.append((device, event))
        with torch.no_grad(), torch.cuda.stream(stream):
            try:
                for index, local in numbered:
                    source = local.contiguous()
                    if source.numel():
                        self._sources.append(source)
                        _tensor_at(places[index], source).copy_(source, non_blocking=True)
            finally:
                event.record(stream)

    def release(self) -> None:
        """Lets an optimizer change the tensors: what it does next comes after the copies.

        Raises:
            StateError: a tensor has changed since it was taken.
        """
        if self._released:
            return
        self._check()
        self._released = True
        self.opened.wait()
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)

    def is_copied(self) -> bool:
        """Whether all is copied."""
        return self.opened.is_copied() and all(event.query() for _, event in self._events)

    def wait(self) -> None:
        """Waits until all is copied."""
        for _, event in self._events:
            event.synchronize()
        self.opened.wait()

    def seal(self) -> tuple[int, int, int]:
        """Seals the commit, when all is copied. Returns its id.

        Raises:
            StateError: a tensor has changed since it was taken.
        """
        self.wait()
        if not self._released:
            self._check()
        self._sources.clear()
        # What a device computes when its group is aborted is invalid, and no error says so. That the round was whole when the
        # commit was granted says nothing of what the device had yet to do.
        return self.opened.seal(must_be_whole=bool(self._events))

    def __del__(self) -> None:
        # A device copies to memory that is used for something else next. A forked child has no device.
        if self._pid == os.getpid():
            for _, event in self._events:
                event.synchronize()

    def _check(self) -> None:
        if self._guarded is not None:
            self._guarded.check()


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]


def _tensor_at(place: tuple[int, int], like: torch.Tensor) -> torch.Tensor:
    """A tensor in the memory at an address, of the type and shape of another one."""
    address, nbytes = place
    memory = (ctypes.c_ubyte * nbytes).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(like.dtype).view(like.shape)


def names_of(tensors: Mapping[str, torch.Tensor]) -> dict[int, str]:
    """Names by ``id()``."""
    return {id(tensor): name for name, tensor in tensors.items()}


def sizes_of(tensors: Sequence[torch.Tensor | None]) -> Iterator[int]:
    """The bytes of the local part of each tensor."""
    for tensor in tensors:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        yield 0 if local is None else local.nbytes
