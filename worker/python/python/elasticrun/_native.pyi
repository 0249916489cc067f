"""The Rust SDK of elasticrun. Internal: use the modules of `elasticrun`."""

from collections.abc import Callable
from typing import final

Buffer = tuple[int, int]
"""Address and length of memory: in bytes, or in elements where an element type is given."""

@final
class Standing:
    """The place of this process in the world."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    round: int
    epoch: int
    prefix: str
    coordinator: str
    host: str

@final
class Work:
    """A collective that was submitted."""

    @property
    def name(self) -> str | None: ...
    def wait(self, timeout: float | None = None) -> None: ...
    def poll(self) -> bool: ...
    def result(self) -> bytes | list[bytes] | None: ...
    def then(self, callback: Callable[[Exception | None], object]) -> None: ...

@final
class Lane:
    """The collectives of a round, run in the order of their submission on a thread of their own."""

    rank: int
    size: int
    def set_timeout(self, seconds: float | None) -> None: ...
    def allreduce(
        self,
        buffers: list[Buffer],
        dtype: str,
        op: str,
        keep: object = None,
        name: str | None = None,
        prescale: float = 1.0,
        postscale: float = 1.0,
        tag: int = 0,
    ) -> Work: ...
    def broadcast(
        self, address: int, nbytes: int, root: int, keep: object = None, name: str | None = None
    ) -> Work: ...
    def allgather(
        self,
        own: Buffer,
        all: Buffer,
        keep: object = None,
        name: str | None = None,
        tag: int = 0,
    ) -> Work: ...
    def reduce_scatter(
        self,
        input: Buffer,
        output: Buffer,
        dtype: str,
        op: str,
        keep: object = None,
        name: str | None = None,
        tag: int = 0,
    ) -> Work: ...
    def alltoall(
        self,
        input: int,
        input_splits: list[int],
        output: int,
        output_splits: list[int],
        keep: object = None,
        name: str | None = None,
    ) -> Work: ...
    def barrier(self, name: str | None = None) -> Work: ...
    def broadcast_bytes(self, data: bytes | None, root: int, name: str | None = None) -> Work: ...
    def allgather_bytes(self, data: bytes, name: str | None = None) -> Work: ...

@final
class Order:
    """A random order of range(len) in constant memory."""

    def __new__(cls, len: int, seed: int, epoch: int) -> Order: ...
    def at(self, place: int) -> int: ...
    def slice(self, start: int, stop: int, step: int = 1) -> bytes: ...
    def __len__(self) -> int: ...

def init() -> None: ...
def initialized() -> bool: ...
def world() -> Standing: ...
def in_round() -> bool: ...
def join() -> Standing: ...
def lane() -> Lane: ...
def sync(
    save: Callable[[], tuple[bytes, list[Buffer]]],
    restore: Callable[[bytes, list[memoryview]], object],
    fresh: bool = False,
) -> bool: ...
def training() -> None: ...
def seal(head: bytes, buffers: list[Buffer]) -> tuple[int, int, int]: ...
def boundary() -> bool: ...
def leave_here() -> Exception: ...
def newest(read: Callable[[bytes, list[memoryview]], object]) -> bool: ...
def finish() -> None: ...
def fail() -> None: ...
def shutdown() -> None: ...
def on_abort(callback: Callable[[int], object] | None) -> None: ...
def on_hosts_updated(callback: Callable[[int], object] | None) -> None: ...
