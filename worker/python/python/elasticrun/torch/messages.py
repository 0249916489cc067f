"""Tensors from one rank to another: send and recv of torch.distributed, carried by gloo.

Messages of one rank to another with one tag arrive in the order in which they were sent. A send is done when its
memory may be written again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from .meeting import Meeting
from .memory import Buffer, refuse_sparse
from .message import Message
from .pending import Pending
from .transport import stored


class Members:
    """Messages in the gloo group of all members of a group."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return _send(self._meeting, tensor, f"send to {to}", to, tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return _receive(self._meeting, tensor, f"recv from {source}", source, tag)

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Pending, Callable[[], int]]:
        buffer = _buffer(tensor, "recv", load=False)
        message = Message(lambda group: group.recv_anysource([buffer.host], tag), "recv from any rank")
        self._meeting.post(message)
        return Pending([message], stored([buffer]), buffer), lambda: message.source


class Pairs:
    """Messages of a whole round: a gloo group for each two that have something to say to each other.

    It is made when the first of them sends or receives, and on a thread, so ``isend`` and ``irecv`` return at once.

    Args:
        store: where the two meet.
        rank: this process's place.
        timeout: longest wait for the other to come.
    """

    def __init__(self, store: Store, rank: int, timeout: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._timeout = timeout
        self._lock = threading.Lock()
        self._meetings: dict[int, Meeting] = {}

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return _send(self._with(to), tensor, f"send to {to}", self._place(to), tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return _receive(self._with(source), tensor, f"recv from {source}", self._place(source), tag)

    def receive_any(self, tensor: torch.Tensor, tag: int) -> tuple[Pending, Callable[[], int]]:
        raise NotImplementedError(
            "the group of all ranks has no recv from any rank: name the source, or use a group that has it "
            '(new_group(ranks) of some ranks, new_group(backend="gloo") of all)'
        )

    def _with(self, peer: int) -> Meeting:
        with self._lock:
            meeting = self._meetings.get(peer)
            if meeting is None:
                low, high = sorted((self._rank, peer))
                store = PrefixStore(f"pair/{low}-{high}", self._store)
                meeting = Meeting(store, 1 - self._place(peer), 2, self._timeout)
                self._meetings[peer] = meeting
            return meeting

    def _place(self, peer: int) -> int:
        """The peer's rank among the two."""
        return int(peer > self._rank)


def _send(meeting: Meeting, tensor: torch.Tensor, what: str, to: int, tag: int) -> Pending:
    buffer = _buffer(tensor, "send")
    message = Message(lambda group: group.send([buffer.host], to, tag), what)
    meeting.post(message)
    return Pending([message], None, buffer)


def _receive(meeting: Meeting, tensor: torch.Tensor, what: str, source: int, tag: int) -> Pending:
    buffer = _buffer(tensor, "recv", load=False)
    message = Message(lambda group: group.recv([buffer.host], source, tag), what)
    meeting.post(message)
    return Pending([message], stored([buffer]), buffer)


def _buffer(tensor: torch.Tensor, call: str, *, load: bool = True) -> Buffer:
    refuse_sparse(tensor, call)
    return Buffer(tensor, load=load)
