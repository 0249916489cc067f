"""init(), the numbers, forks, and scripts that know nothing of us."""

from __future__ import annotations

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
