"""init(), the numbers, forks, and scripts that know nothing of us."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "call",
    [
        "rank()",
        "size()",
        "local_rank()",
        "local_size()",
        "cross_rank()",
        "cross_size()",
        "world()",
        "allreduce(1.0)",
        "barrier()",
        "broadcast_object(1)",
        "ObjectState(step=0).commit()",
        "ObjectState(step=0).check_host_updates()",
        "ElasticSampler(10)",
        "elastic.run(lambda state: None)(elasticrun.ObjectState(step=0))",
    ],
)
def test_a_call_before_init_is_named(start, call):
    text = start.alone(f"""
        import elasticrun
        try:
            elasticrun.{call}
        except elasticrun.errors.NotInitialized as error:
            print("NAMED", error)
    """)
    assert "was called before init(): call elasticrun.init() first" in text


def test_a_script_by_hand_is_a_world_of_one(start):
    text = start.alone("""
        import elasticrun as e
        e.init()
        e.init()
        print(e.is_initialized(), e.rank(), e.size(), e.local_rank(), e.local_size(), e.cross_rank(), e.cross_size())
        print(e.allreduce(3.0), e.allgather_object("x"), e.broadcast_object({1: 2}))
        e.shutdown()
        print(e.is_initialized())
    """)
    assert text.splitlines() == ["True 0 1 0 1 0 1", "3.0 ['x'] {1: 2}", "False"]


def test_nothing_runs_before_init(start):
    text = start.alone("""
        import os
        import elasticrun
        print("THREADS", len(os.listdir("/proc/self/task")))
        child = os.fork()
        if child == 0:
            elasticrun.init()
            print("CHILD", elasticrun.allreduce(2.0), flush=True)
            os._exit(0)
        print("STATUS", os.waitpid(child, 0)[1])
        elasticrun.init()
        print("PARENT", elasticrun.allreduce(3.0))
    """)
    assert set(text.splitlines()) == {"THREADS 1", "CHILD 2.0", "STATUS 0", "PARENT 3.0"}


def test_a_forked_child_reads_the_numbers_and_is_told_of_all_else(start):
    text = start.job(
        "-np 2",
        """
        import os, sys
        import elasticrun as e
        e.init()
        e.barrier()
        child = os.fork()
        if child == 0:
            print("CHILD", e.rank(), e.size(), e.is_initialized())
            train = e.elastic.run(print)
            for call in (lambda: e.allreduce(1.0), e.init, lambda: train(e.ObjectState())):
                try:
                    call()
                except e.errors.ForkedError as error:
                    print("TOLD", error)
            sys.exit(0)
        print("STATUS", os.waitpid(child, 0)[1])
        print("SUM", e.allreduce(1.0, e.Sum))
        """,
    ).succeed()
    for rank in (0, 1):
        assert f"[{rank}]<stdout>:CHILD {rank} 2 True" in text
        assert f"[{rank}]<stdout>:STATUS 0" in text
        assert f"[{rank}]<stdout>:SUM 2.0" in text
    assert text.count("was called in a forked child of the worker") == 6


def test_multiprocessing_after_init(start):
    text = start.alone("""
        import multiprocessing
        import elasticrun as e

        def work(number):
            return number + e.rank()

        if __name__ == "__main__":
            e.init()
            e.barrier()
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(pool.map(work, [1, 2, 3]))
            print(e.allreduce(1.0))
    """)
    assert text.splitlines() == ["[1, 2, 3]", "1.0"]


def test_a_job_whose_script_does_not_know_us(start):
    text = start.job(
        "-np 2",
        """
        import os
        print(os.environ["RANK"], os.environ["WORLD_SIZE"])
        """,
    ).succeed()
    assert "[0]<stdout>:0 2" in text
    assert "[1]<stdout>:1 2" in text


def test_a_script_without_elastic_run_has_collectives(start):
    text = start.job(
        "-np 3",
        """
        import elasticrun as e
        e.init()
        print("SUM", e.rank(), e.allreduce(float(e.rank()), e.Sum))
        """,
    ).succeed()
    assert sorted(line.split(":")[1] for line in text.splitlines() if "SUM" in line) == [
        "SUM 0 3.0",
        "SUM 1 3.0",
        "SUM 2 3.0",
    ]


def test_shutdown_and_init_again(start):
    text = start.job(
        "-np 2",
        """
        import sys
        import elasticrun as e
        from elasticrun.process_sets import global_process_set
        hooks = set()
        for turn in range(3):
            e.init(comm=[0, 1], process_sets=[global_process_set])
            assert e.is_initialized() and e.size() == 2
            print("SUM", turn, e.allreduce(float(e.rank()), e.Sum), "ROUND", e.world().round)
            e.shutdown()
            assert not e.is_initialized()
            try:
                e.rank()
            except e.errors.NotInitialized:
                print("NAMED", turn)
            hooks.add(sys.excepthook)
        print("HOOKS", len(hooks))
        """,
    ).succeed()
    for rank in (0, 1):
        for turn in range(3):
            assert f"[{rank}]<stdout>:SUM {turn} 1.0 ROUND 1" in text
            assert f"[{rank}]<stdout>:NAMED {turn}" in text
        assert f"[{rank}]<stdout>:HOOKS 1" in text


def test_elastic_run_after_shutdown_and_init(start):
    text = start.count(
        "-np 2 --min-np 2",
        """
def again():
    e.shutdown()
    e.init()
e.barrier()
again()

@e.elastic.run
def train(state):
    again()
    count(state, 3, before=again)
    again()
    state.commit()
    return state.count

print("END", train(state))
again()
print("AFTER", e.allreduce(1.0, e.Sum), e.world().round)
""",
    ).succeed()
    assert start.rounds(text) == [(1, 0, 2, 0), (1, 1, 2, 0)]
    assert text.count("END 3.0") == 2
    assert text.count("AFTER 2.0 1") == 2


@pytest.mark.parametrize("elastic", [False, True])
def test_a_round_that_ends_between_shutdown_and_init(elastic, start, tmp_path):
    os.mkfifo(tmp_path / "shut")
    text = start.job(
        "-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever",
        f"""
        import os, signal, threading
        import elasticrun as e

        aborted = threading.Event()
        e.notifications.on_abort(lambda *_: aborted.set())

        def lose_the_other():
            e.shutdown()
            if os.environ["HOROVOD_LOCAL_RANK"] == "1":
                # Returns when rank 0 opens it too.
                open("{tmp_path}/shut").close()
                os.kill(os.getpid(), signal.SIGKILL)
            open("{tmp_path}/shut", "w").close()
            assert aborted.wait(300)
            e.init()

        e.init()
        state = e.ObjectState(step=0)

        @e.elastic.run
        def train(state):
            if e.world().round == 1:
                state.step = 1
                state.commit()
                state.step = 2
                lose_the_other()
            print("FROM", state.step, "SUM", e.allreduce(1.0, e.Sum), "ROUND", e.world().round)

        if {elastic}:
            train(state)
        else:
            e.barrier()
            lose_the_other()
            print("SUM", e.allreduce(1.0, e.Sum), "ROUND", e.world().round)
        """,
    ).succeed()
    assert ("FROM 1 SUM 1.0 ROUND 2" if elastic else "SUM 1.0 ROUND 2") in text


def test_init_for_some_of_the_ranks_is_refused_by_name(start):
    text = start.alone("""
        import elasticrun as e
        for arguments in ({"comm": [1]}, {"comm": object()}, {"process_sets": "dynamic"}, {"process_sets": [object()]}):
            try:
                e.init(**arguments)
            except NotImplementedError as error:
                print("NAMED", error)
            assert not e.is_initialized()
        e.init(range(1), None)
        print(e.allreduce(1.0))
    """)
    assert text.count("NAMED init(comm=") == 2
    assert text.count("NAMED process sets are not offered") == 2
    assert text.endswith("\n1.0")


def test_python_m_elasticrun_is_the_program():
    run = [sys.executable, "-m", "elasticrun"]
    version = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("elasticrun ")
    wrong = subprocess.run([*run, "-np", "0", "true"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2


def test_a_program_that_is_nowhere_is_one_line(monkeypatch):
    from elasticrun import _binary

    monkeypatch.delenv("ELASTICRUN_BIN", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nonexistent")
    with pytest.raises(FileNotFoundError, match="pip install elasticrun, or set ELASTICRUN_BIN"):
        _binary.find()


def test_the_public_surface_is_there():
    import elasticrun

    for name in elasticrun.__all__:
        assert getattr(elasticrun, name) is not None
        assert getattr(elasticrun, name).__doc__, name
