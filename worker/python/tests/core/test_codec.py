"""States as bytes, without a job."""

from __future__ import annotations

import array
import sys
import threading
import types

import numpy as np
import pytest

from elasticrun import codec
from elasticrun.errors import StateError


def copied(value, live=None):
    """``value`` after a way through bytes."""
    kept = codec.encode(value).copy()
    return codec.decode(kept.head, kept.views(), live)


ARRAYS = [
    np.arange(6, dtype="f4").reshape(2, 3),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(10)[::3],
    np.array(5.0),
    np.zeros((0, 4)),
    np.array([True, False]),
    np.array(["ab", "c"]),
    np.array([b"ab", b"c"]),
    np.array([1 + 2j]),
    np.array(["2026-01-01"], "M8[D]"),
    np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    np.zeros(3, ">i4") + 7,
    np.broadcast_to(np.arange(3), (2, 3)),
]


@pytest.mark.parametrize("own", ARRAYS, ids=lambda own: f"{own.dtype.str}{own.shape}")
def test_arrays_come_back(own):
    back = copied({"own": own})["own"]
    assert back.dtype == own.dtype
    assert back.shape == own.shape
    assert (back == own).all()
    assert back.flags.writeable
    assert back.flags.f_contiguous == own.flags.f_contiguous or not own.flags.c_contiguous
    assert not np.shares_memory(back, own)


def test_memory_of_arrays_is_not_pickled_or_copied():
    own = np.zeros(1_000_000)
    payload = codec.encode({"own": own, "also": [own]})
    assert len(payload.head) < 1000
    assert payload.buffers == [(own.ctypes.data, own.nbytes)]


def test_an_array_that_is_there_twice_stays_one():
    own = np.arange(3)
    back = copied([own, {"same": own}])
    assert back[0] is back[1]["same"]


def test_objects_and_arrays_of_objects():
    value = {"a": [1, "x", None, 2.5, {3}], "b": np.array([None, "x"]), "c": b"bytes"}
    back = copied(value)
    assert back["a"] == value["a"]
    assert back["b"].tolist() == [None, "x"]
    assert back["c"] == b"bytes"


def test_buffers_come_back_as_they_are():
    back = copied([array.array("d", [1, 2]), bytearray(b"ab"), array.array("B"), bytearray()])
    assert back == [array.array("d", [1, 2]), bytearray(b"ab"), array.array("B"), bytearray()]
    assert type(back[1]) is bytearray


def test_views_of_memory_come_back_in_place_or_as_new_ones():
    own = memoryview(array.array("d", [1, 2, 3, 4])).cast("B").cast("d", (2, 2))
    back = copied(own)
    assert back.tolist() == [[1, 2], [3, 4]]
    assert back.format == "d"
    target = bytearray(32)
    live = memoryview(target).cast("d", (2, 2))
    assert copied(own, live) is live
    assert array.array("d", bytes(target)).tolist() == [1, 2, 3, 4]
    assert copied(memoryview(b"abc")).tobytes() == b"abc"
    assert copied(memoryview(b"abcd")[::2]).tobytes() == b"ac"
    assert copied(memoryview(b"abc"), memoryview(b"xyz")).tobytes() == b"abc"


def test_arrays_with_dlpack_come_back_in_place_or_as_new_ones(frames):
    own = frames.Tensor(np.arange(6.0).reshape(2, 3).T)
    payload = codec.encode([own])
    assert len(payload.buffers) == 1
    back = copied([own])[0]
    assert type(back) is frames.Tensor
    assert (back.data == own.data).all()
    live = frames.Tensor(np.zeros((3, 2)))
    assert copied([own], [live])[0] is live
    assert (live.data == own.data).all()
    other = frames.Tensor(np.zeros((3, 1)))
    assert copied([own], [other])[0].data.shape == (3, 2)


def test_arrays_that_do_not_export_themselves_are_pickled(frames, monkeypatch):
    own = frames.Tensor(np.arange(3.0))
    monkeypatch.setattr(frames.Tensor, "refuses", True)
    assert codec.encode([own]).buffers[0][1] == 24  # The array inside of it.
    back = copied([own])[0]
    assert (back.data == own.data).all()


@pytest.fixture
def frames(monkeypatch):
    """A separate library whose arrays support DLPack."""
    module = types.ModuleType("frames")

    class Tensor:
        refuses = False

        def __init__(self, data):
            self.data = data

        def __dlpack__(self, **how):
            if self.refuses:
                raise BufferError("gradients are not exported")
            return self.data.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.data.__dlpack_device__()

    Tensor.__module__ = "frames"
    Tensor.__qualname__ = "Tensor"
    module.Tensor = Tensor
    module.from_dlpack = lambda array: Tensor(np.from_dlpack(array))
    monkeypatch.setitem(sys.modules, "frames", module)
    return module


def test_a_buffer_can_grow_after_it_was_encoded():
    own = bytearray(b"ab")
    payload = codec.encode(own)
    with pytest.raises(BufferError):
        own.append(1)
    del payload
    own.append(1)


def test_live_arrays_are_filled_in_place():
    own = {"w": np.arange(3.0), "b": array.array("q", [1, 2]), "n": 1}
    live = {"w": np.zeros(3), "b": array.array("q", [0, 0]), "n": 2}
    back = copied(own, live)
    assert back["w"] is live["w"]
    assert back["b"] is live["b"]
    assert live["w"].tolist() == [0, 1, 2]
    assert live["b"].tolist() == [1, 2]
    assert back["n"] == 1


@pytest.mark.parametrize(
    "live",
    [
        np.zeros(4),
        np.zeros(3, "f4"),
        np.zeros((3, 1)),
        np.zeros(6)[::2],
        np.broadcast_to(np.zeros(1), 3),
        None,
        "other",
    ],
    ids=str,
)
def test_live_arrays_that_do_not_fit_are_left_alone(live):
    before = np.copy(live) if isinstance(live, np.ndarray) else live
    back = copied([np.arange(3.0)], [live])
    assert back[0] is not live
    assert back[0].tolist() == [0, 1, 2]
    if isinstance(live, np.ndarray):
        assert (live == before).all()


def test_live_arrays_that_share_memory_are_not_filled():
    first, second = np.arange(3.0), np.arange(3.0) + 10
    kept = codec.encode([first, second]).copy()
    base = np.zeros(5)
    back = codec.decode(kept.head, kept.views(), [base[:3], base[2:]])
    assert back[0].tolist() == [0, 1, 2]
    assert back[1].tolist() == [10, 11, 12]
    # One name for both, as after `state.previous = state.weights`.
    back = codec.decode(kept.head, kept.views(), [first, first])
    assert back[0].tolist() == [0, 1, 2]
    assert back[1].tolist() == [10, 11, 12]


class Wrapped:
    def __init__(self, inner):
        self.inner = inner


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"lock": threading.Lock()}, r"^lock \(lock\) cannot be serialised"),
        ({"a": 1, "b": [1, {"deep": threading.Lock()}]}, r"^b\[1\]\[deep\] \(lock\)"),
        ({"loader": Wrapped(Wrapped(x for x in []))}, r"^loader\.inner\.inner \(generator\)"),
        ({"f": lambda: None}, r"^f \(function\) cannot be serialised"),
        (Wrapped({1: open}), None),
    ],
)
def test_what_cannot_be_serialised_is_named(value, words):
    if words is None:
        assert copied(value).inner == {1: open}
        return
    with pytest.raises(StateError, match=words):
        codec.encode(value)


def test_a_cycle_with_what_cannot_be_serialised_ends():
    value = {"lock": threading.Lock()}
    value["self"] = value
    with pytest.raises(StateError, match=r"^lock"):
        codec.encode(value)


def test_a_class_that_is_not_here_is_told():
    kept = codec.encode(Wrapped(1)).copy()
    missing = kept.head.replace(b"Wrapped", b"Wropped")
    with pytest.raises(StateError, match=r"Wropped.*do all workers run the same program"):
        codec.decode(missing, [])


def test_arrays_of_a_library_that_is_not_here_are_told(monkeypatch):
    class Tensor:
        pass

    class Coder:
        def encode(self, tensor):
            return codec.Stored(None, 0, 0, tensor)

        def decode(self, meta, data, live):
            return Tensor()

    codec.register(Tensor, "frames", Coder())
    kept = codec.encode([Tensor()]).copy()
    assert isinstance(codec.decode(kept.head, kept.views())[0], Tensor)
    monkeypatch.delitem(codec._BY_NAME, "frames")
    with pytest.raises(StateError, match="arrays of frames"):
        codec.decode(kept.head, kept.views())


@pytest.mark.full
@pytest.mark.parametrize("nbytes", [2**31 + 8, 2**32 + 8])
def test_arrays_beyond_2_and_4_gib_are_copied_whole(nbytes: int) -> None:
    # Unwritten pages take no memory.
    large = np.zeros(nbytes // 8)
    large[0], large[-1] = 1, 2
    kept = codec.encode({"large": large}).copy()
    assert [len(buffer) for buffer in kept.buffers] == [nbytes]
    copy = np.frombuffer(kept.buffers[0])
    assert (copy[0], copy[1], copy[-1]) == (1, 0, 2)
