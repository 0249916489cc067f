"""send and recv of torch.distributed, through gloo.

Messages between two ranks with the same tag arrive in the order in which they were sent. A send is done when its memory may be
written again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from .inflight import Inflight
from .memory import Buffer, refuse_sparse
from .message import Message
from .subgroup_rendezvous import SubgroupRendezvous
from .transport import copy_back


class GroupMessages:
    """Messages through one gloo group of all members."""

    def __init__(self, rendezvous: SubgroupRendezvous) -> None:
        self._rendezvous = rendezvous

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> Inflight:
        return _send(self._rendezvous, tensor, f"send to {dst}", dst, tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Inflight:
        return _receive(self._rendezvous, tensor, f"recv from {source}", source, tag)

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Inflight, Callable[[], int]]:
        buffer = _buffer(tensor, "recv", load=False)
        message = Message(lambda group: group.recv_anysource([buffer.host], tag), "recv from any rank")
        self._rendezvous.post(message)
        return Inflight([message], copy_back([buffer]), buffer), lambda: message.source


class PairMessages:
    """Messages between all ranks of a round, with one gloo group for each pair that communicates.

    The first send or receive of a pair creates its group on a separate thread, so ``isend`` and ``irecv`` return immediately.

    Args:
        store: store through which pairs connect.
        rank: rank of this process.
        timeout: maximum wait for the peer to connect.
    """

    def __init__(self, store: Store, rank: int, timeout: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._timeout = timeout
        self._lock = threading.Lock()
        self._rendezvous_by_peer: dict[int, SubgroupRendezvous] = {}

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> Inflight:
        return _send(self._rendezvous_with(dst), tensor, f"send to {dst}", self._pair_rank(dst), tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Inflight:
        return _receive(self._rendezvous_with(source), tensor, f"recv from {source}", self._pair_rank(source), tag)

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Inflight, Callable[[], int]]:
        raise NotImplementedError(
            "the group of all ranks has no recv from any rank: name the source, or use a group that has it "
            '(new_group(ranks) of some ranks, new_group(backend="gloo") of all)'
        )

    def _rendezvous_with(self, peer: int) -> SubgroupRendezvous:
        with self._lock:
            rendezvous = self._rendezvous_by_peer.get(peer)
            if rendezvous is None:
                low, high = sorted((self._rank, peer))
                store = PrefixStore(f"pair/{low}-{high}", self._store)
                rendezvous = SubgroupRendezvous(store, 1 - self._pair_rank(peer), 2, self._timeout)
                self._rendezvous_by_peer[peer] = rendezvous
            return rendezvous

    def _pair_rank(self, peer: int) -> int:
        """The rank of the peer in the pair, 0 or 1."""
        return int(peer > self._rank)


def _send(rendezvous: SubgroupRendezvous, tensor: torch.Tensor, what: str, dst: int, tag: int) -> Inflight:
    buffer = _buffer(tensor, "send")
    message = Message(lambda group: group.send([buffer.host], dst, tag), what)
    rendezvous.post(message)
    return Inflight([message], None, buffer)


def _receive(rendezvous: SubgroupRendezvous, tensor: torch.Tensor, what: str, source: int, tag: int) -> Inflight:
    buffer = _buffer(tensor, "recv", load=False)
    message = Message(lambda group: group.recv([buffer.host], source, tag), what)
    rendezvous.post(message)
    return Inflight([message], copy_back([buffer]), buffer)


def _buffer(tensor: torch.Tensor, call: str, *, load: bool = True) -> Buffer:
    refuse_sparse(tensor, call)
    return Buffer(tensor, load=load)
