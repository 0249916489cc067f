"""Collectives on arrays, in jobs of several ranks."""

from __future__ import annotations

import pytest

NUMPY = """
import array, ctypes
import numpy as np
import elasticrun as e
e.init()
rank, size = e.rank(), e.size()
"""


def ranks(start, size, text, flags=""):
    """Runs ``text`` after the imports in ``size`` ranks; all must end well."""
    import textwrap

    return start.job(f"-np {size} {flags}", NUMPY + textwrap.dedent(text)).succeed()


def test_allreduce_of_each_type(start):
    ranks(
        start,
        3,
        """
        for name in "uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split():
            own = np.arange(6, dtype=name).reshape(2, 3) + rank
            for op, expected in [
                (e.Sum, 3 * np.arange(6) + 3), (e.Average, np.arange(6) + 1), (e.Min, np.arange(6)),
                (e.Max, np.arange(6) + 2), (e.Product, np.arange(6) * (np.arange(6) + 1) * (np.arange(6) + 2)),
            ]:
                got = e.allreduce(own, op)
                assert got.dtype == name and got.shape == (2, 3)
                assert (got == expected.astype(name).reshape(2, 3)).all(), (name, op, got)
        """,
    )


def test_allreduce_of_each_kind_of_array(start):
    ranks(
        start,
        2,
        """
        # Not contiguous, not writable, without dimensions, without elements, of scalars and numbers.
        own = np.arange(12, dtype="f4").reshape(3, 4)
        assert (e.allreduce(own.T, e.Sum) == 2 * own.T).all()
        assert (e.allreduce(own[:, ::2], e.Sum) == 2 * own[:, ::2]).all()
        own.flags.writeable = False
        assert (e.allreduce(own, e.Sum) == 2 * own).all()
        assert e.allreduce(np.array(3.0), e.Sum).shape == ()
        assert e.allreduce(np.zeros((0, 3))).shape == (0, 3)
        got = e.allreduce(np.float32(1.5), e.Sum)
        assert type(got) is np.float32 and got == 3
        assert e.allreduce(1.5, e.Sum) == 3.0 and e.allreduce(2 + rank, e.Max) == 3
        assert e.allreduce(np.array([True, rank == 0]), e.Min).tolist() == [True, False]
        # The buffer protocol.
        got = e.allreduce(array.array("f", [1, 2]), e.Sum)
        assert got == array.array("f", [2, 4]) and type(got) is array.array
        assert e.allreduce(bytearray(b"\\1\\2"), e.Sum) == bytearray(b"\\2\\4")
        assert e.allreduce(b"\\1\\2", e.Sum) == b"\\2\\4"
        view = memoryview(array.array("d", [1, 2, 3, 4])).cast("B").cast("d", (2, 2))
        assert e.allreduce(view, e.Sum).tolist() == [[2, 4], [6, 8]]
        assert e.allreduce((ctypes.c_int * 2)(3, 4), e.Sum).tolist() == [6, 8]
        # DLPack.
        class Tensor:
            def __init__(self, data): self.data = data
            def __dlpack__(self, **how): return self.data.__dlpack__(**how)
            def __dlpack_device__(self): return self.data.__dlpack_device__()
            def __array_namespace__(self): return np
        assert e.allreduce(Tensor(np.ones(3)), e.Sum).tolist() == [2, 2, 2]
        tensor = Tensor(np.ones(3))
        assert e.allreduce_(tensor, e.Sum) is tensor and tensor.data.tolist() == [2, 2, 2]
        """,
    )


def test_allreduce_in_place(start):
    ranks(
        start,
        2,
        """
        own = np.ones(4); seen = own
        assert e.allreduce_(own, e.Sum) is own and seen.tolist() == [2] * 4
        part = np.ones((4, 4)); e.allreduce_(part[:, 1], e.Sum)
        assert part.sum() == 20
        buffer = array.array("d", [1]); e.allreduce_(buffer, e.Sum); assert buffer[0] == 2
        handle = e.allreduce_async_(own, e.Sum); handle.wait()
        assert own.tolist() == [4] * 4 and handle.poll()
        for bad in (b"x", 1.0, np.float32(1)):
            try:
                e.allreduce_(bad)
            except TypeError as error:
                assert "cannot be changed in place" in str(error), error
            else:
                raise AssertionError(bad)
        e.barrier()
        """,
    )


def test_factors_groups_and_handles(start):
    ranks(
        start,
        2,
        """
        assert e.allreduce(np.ones(2), e.Sum, prescale_factor=3, postscale_factor=0.5).tolist() == [3, 3]
        first, second, third = e.grouped_allreduce([np.ones(2), np.ones(3, "i4"), np.full(1, 5.0)], e.Sum)
        assert first.tolist() == [2, 2] and second.tolist() == [2, 2, 2] and third.tolist() == [10]
        group = [np.ones(2, "f4"), np.ones((2, 2), "f4")]
        assert e.grouped_allreduce_(group, e.Sum)[1] is group[1] and group[1].sum() == 8
        own = np.ones(100_000)
        handles = [e.allreduce_async(own * turn, e.Sum) for turn in range(20)]
        for turn in reversed(range(20)):
            assert (e.synchronize(handles[turn]) == 2 * turn).all() and e.poll(handles[turn])
        """,
    )


def test_allgather_broadcast_alltoall_reducescatter(start):
    ranks(
        start,
        3,
        """
        own = np.full((rank, 2), rank, "i2")
        assert e.allgather(own).tolist() == [[1, 1], [2, 2], [2, 2]]
        assert e.allgather(array.array("q", [rank])) == array.array("q", [0, 1, 2])
        assert e.allgather(np.zeros((0, 5))).shape == (0, 5)
        assert e.allgather(np.array([1 + 2j])).tolist() == [1 + 2j] * 3
        assert e.broadcast(np.array([rank], "M8[s]"), 2)[0] == np.datetime64(2, "s")
        place = np.full(3, rank); e.broadcast_(place, 1); assert place.tolist() == [1] * 3
        assert e.broadcast(rank + 0.5, 2) == 2.5
        got = e.alltoall(np.arange(6) + 10 * rank)
        assert got.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank, 20 + 2 * rank, 21 + 2 * rank]
        # Rank r sends r rows to rank 0, none to rank 1, one to rank 2.
        got, splits = e.alltoall(np.full((rank + 1, 2), rank), [rank, 0, 1])
        assert splits == [[0, 1, 2], [0, 0, 0], [1, 1, 1]][rank]
        assert got[:, 0].tolist() == [[1, 2, 2], [], [0, 1, 2]][rank]
        assert e.reducescatter(np.arange(6.0).reshape(3, 2), e.Sum).tolist() == [[6 * rank, 6 * rank + 3]]
        rest = e.reducescatter(np.arange(5.0), e.Sum)
        assert rest.tolist() == [[0, 3], [6, 9], [12]][rank]
        assert e.broadcast_object({"rank": rank}, 1) == {"rank": 1}
        assert e.allgather_object("x" * rank) == ["", "x", "xx"]
        e.barrier()
        """,
    )


def test_reductions_by_name(start):
    ranks(
        start,
        2,
        """
        import elasticrun.reductions as horovods
        assert e.ReduceOp.Sum is e.ReduceOp.SUM is e.Sum and e.ReduceOp.Average is e.Average
        assert [op.name for op in e.ReduceOp] == ["AVERAGE", "SUM", "MIN", "MAX", "PRODUCT"]
        for op in (e.ReduceOp.Sum, "sum", "Sum", horovods.Sum):
            assert e.allreduce(1.5, op) == 3.0
            assert e.grouped_allreduce([np.ones(1)], op=op)[0].tolist() == [2]
            assert e.reducescatter(np.ones(2), op).tolist() == [2]
        for wrong in ("mean", 1, None, horovods.Adasum):
            for call in (e.allreduce, e.allreduce_, e.reducescatter, lambda x, op: e.grouped_allreduce([x], op)):
                try:
                    call(np.ones(2), wrong)
                except TypeError as error:
                    assert "use Average, Sum, Min, Max or Product" in str(error), error
                else:
                    raise AssertionError(wrong)
        e.barrier()
        """,
    )


def test_without_numpy(start):
    text = start.job(
        "-np 2",
        """
        import sys
        sys.modules["numpy"] = None
        import array
        import elasticrun as e
        e.init()
        assert e.allreduce(array.array("f", [1, 2]), e.Sum).tolist() == [2, 4]
        assert e.allgather(bytearray(b"a")) == b"aa"
        state = e.ArrayState(weights=array.array("d", [1, 2]), step=0)
        weights = state.weights

        @e.elastic.run
        def train(state):
            state.commit()
            weights[0] = 7
            state.restore()
            print("WEIGHTS", weights.tolist())

        train(state)
        """,
    ).succeed()
    assert text.count("WEIGHTS [1.0, 2.0]") == 2


def test_ranks_of_two_hosts(start):
    ranks(
        start,
        4,
        """
        big = np.arange(300_000, dtype="f4") + rank
        assert (e.allreduce(big, e.Average) == np.arange(300_000, dtype="f4") + 1.5).all()
        assert (e.allgather(np.full(1000, rank))[::1000] == np.arange(4)).all()
        assert e.alltoall(np.arange(4) + 4 * rank).tolist() == [rank, 4 + rank, 8 + rank, 12 + rank]
        """,
        "-H localhost:2,127.0.0.1:2",
    )


MISMATCHES = {
    "shape": ("e.allreduce(np.zeros(6 - rank, 'f4'), name='loss')", ["rank 1", "'loss'", "float32[5]"]),
    "shape of as many": ("e.allreduce(np.zeros([(2, 3), (3, 2)][rank]), name='loss')", ["rank 1", "'loss'", "float64[3, 2]"]),
    "shape in a group": ("e.grouped_allreduce([np.zeros(2 + rank), np.zeros(3 - rank)], name='loss')", ["rank 1", "'loss'", "float64[3]"]),
    "rows": ("e.reducescatter(np.zeros([(2, 3), (6, 1)][rank]), name='loss')", ["rank 1", "'loss'", "float64[6, 1]"]),
    "name": ("e.allreduce(np.zeros(3), name=['loss', 'accuracy'][rank])", ["rank 1", "'accuracy'"]),
    "type": ("e.allreduce(np.zeros(4, ['f4', 'f8'][rank]), name='loss')", ["rank 1", "'loss'", "float64[4]"]),
    "reduction": ("e.allreduce(np.zeros(4), [e.Sum, e.Min][rank], name='loss')", ["rank 1", "'loss'", "min"]),
    "function": ("[lambda: e.allreduce(np.zeros(4), name='loss'), e.barrier][rank]()", ["rank 1", "barrier"]),
    "bytes": ("e.broadcast(np.zeros(4 + rank), name='weights')", ["rank 1", "'weights'", "float64[5]"]),
    "root": ("e.broadcast(np.zeros(4), rank, name='weights')", ["rank 1", "'weights'", "from rank 1"]),
    "columns": ("e.allgather(np.zeros((2, 3 + rank)), name='rows')", ["rank 1", "'rows'", "float64[2, 4]"]),
    "columns of alltoall": ("e.alltoall(np.zeros((2, 3 + rank)), name='rows')", ["rank 1", "'rows'", "float64[2, 4]"]),
}  # fmt: skip


@pytest.mark.parametrize("what", MISMATCHES)
def test_a_mismatch_names_rank_and_array(start, what):
    call, words = MISMATCHES[what]
    told = ranks(
        start,
        2,
        f"""
        try:
            {call}
        except e.errors.CollectiveMismatch as error:
            print("TOLD", error)
        """,
    )
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:TOLD" in told
    assert all(word in told for word in words), (words, told)


def test_a_mismatch_ends_the_job(start):
    text = start.job("-np 2", NUMPY + "e.allreduce(np.zeros(6 - rank), name='loss')").fail(1)
    assert "CollectiveMismatch: allreduce of 'loss' (float64[" in text


def test_workers_that_start_a_round_differently_are_told_so(start):
    told = ranks(
        start,
        2,
        """
        try:
            if rank == 0:
                e.elastic.run(lambda state: None)(e.ArrayState(step=0))
            else:
                e.allreduce(np.zeros(2), name='loss')
        except e.errors.CollectiveMismatch as error:
            print("TOLD", error)
        """,
    )
    assert "[0]<stdout>:TOLD the workers do not start a round alike: run one script with one release of" in told
    assert "[1]<stdout>:TOLD allreduce of 'loss'" in told


def test_a_collective_that_some_ranks_do_not_call_names_them(start):
    text = start.job(
        "-np 3",
        NUMPY
        + """
import signal
e.set_collective_timeout(2)
e.barrier()
if rank == 1:
    signal.pause()
e.allreduce(np.zeros(3), name="loss")
""",
    ).fail(1)
    told = next(line for line in text.splitlines() if "CollectiveTimeout" in line)
    assert "'loss'" in told
    assert "[1]" in told


def test_the_cause_is_told_though_its_consequence_is_quicker(start):
    text = start.job(
        "-np 3",
        NUMPY
        + """
import signal, sys, time
e.barrier()
if rank == 0:
    e.set_collective_timeout(0.2)
    print_error = sys.excepthook

    # A machine that is busy: rank 2, which fails since this rank leaves, is done long before.
    def slowly(*error):
        time.sleep(0.5)
        print_error(*error)

    sys.excepthook = slowly
if rank == 1:
    signal.pause()
e.allreduce(np.zeros(3), name="loss")
""",
    ).fail(1)
    assert "CollectiveTimeout" in text
    assert "first failure: host localhost, local rank 0" in text


def test_what_is_no_array_is_told(start):
    ranks(
        start,
        1,
        """
        import decimal
        for bad, words in [
            (None, "is no array"), (decimal.Decimal(1), "is no array"), ("text", "is no array"), ([1.0], "is no array"),
            (np.array([None]), "holds Python objects"), (np.zeros(2, ">f4"), "byte order"),
            (np.zeros(2, "c8"), "cannot be combined"), (np.zeros(2, bool), "bool by Min (and) and Max (or)"),
        ]:
            try:
                e.allreduce(bad)
            except TypeError as error:
                assert words in str(error), error
            else:
                raise AssertionError(bad)
        for call, words in [
            (lambda: e.broadcast(1.0, 3), "there are the ranks 0 to 0"),
            (lambda: e.broadcast_object(1.0, -1), "there are the ranks 0 to 0"),
            (lambda: e.allgather(np.array(1.0)), "no rows"),
            (lambda: e.alltoall(np.zeros(3), [2]), "whose sum is 3"),
            (lambda: e.set_collective_timeout(0), "more than 0"),
        ]:
            try:
                call()
            except ValueError as error:
                assert words in str(error), error
            else:
                raise AssertionError(words)
        """,
    )


def test_an_array_that_jax_traces_is_refused_with_what_to_write(start):
    text = start.alone("""
        import sys, types

        class Tracer:
            def __dlpack__(self): raise AttributeError("it has no memory")
            def __dlpack_device__(self): raise AttributeError("it has no memory")

        sys.modules["jax.core"] = types.SimpleNamespace(Tracer=Tracer)
        import elasticrun as e
        e.init()
        for call in (e.allreduce, e.broadcast, e.allgather, e.allreduce):
            try:
                call(type("DynamicJaxprTracer", (Tracer,), {})())
            except TypeError as error:
                print("TOLD", error)
    """)
    assert text.count("TOLD DynamicJaxprTracer is no array: JAX compiles") == 4
    assert text.count("io_callback(lambda x: elasticrun.allreduce(numpy.asarray(x))") == 4


@pytest.mark.parametrize(
    "hosts", ["-np 2 -H localhost:2", "-np 2 -H localhost:1,127.0.0.1:1", "-np 4 -H localhost:2,127.0.0.1:2"]
)
def test_a_rank_that_ended_before_others_is_named(hosts, start):
    text = start.job(
        hosts,
        """
        import elasticrun as e
        e.init()
        last = e.size() - 1
        for step in range(4 - (e.rank() == last)):
            e.allreduce(1.0, name="the loss")
        """,
    ).fail()
    assert "WorkerEnded: allreduce of 'the loss' (float64[], average): rank" in text
    assert "has ended or left its training, while this rank still calls collectives" in text
    # The first failure of the job. It ends a rank, so that of four ranks another one may only see that a worker failed.
    assert "| elasticrun.errors.WorkerEnded: allreduce of 'the loss'" in text
    if hosts.startswith("-np 2"):
        assert "a worker of the round failed" not in text


def test_a_rank_that_failed_is_no_rank_that_ended(start):
    text = start.job(
        "-np 2",
        """
        import elasticrun as e
        e.init()
        for step in range(3):
            e.allreduce(1.0)
        if e.rank() == 0:
            raise ValueError("mine")
        e.allreduce(1.0)
        """,
    ).fail()
    # The other rank is stopped, or learns of the failure first.
    assert "ValueError: mine" in text
    assert "WorkerEnded" not in text
