"""However a job ends, it gives its slots back and leaves nothing."""

from __future__ import annotations

import os
import signal

import pytest
from cluster import eventually, parent
from jobs import Bench
from pyspark import SparkContext

#: Seconds after which nothing of a job may be left.
SOON = 5.0

#: A worker with a child in a separate session.
LEAVES_A_CHILD = """
    import subprocess
    def child(state, started=[]):
        if not started:
            started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
    def work():
        return train(FOLDER, before=child)
    sc = context()
    elasticrun.spark.run(work, num_proc=4, min_num_proc=2, env=MARK)
"""


def left(bench: Bench) -> dict[int, str]:
    """Processes of jobs, and what their workers have started."""
    sleeping = {p: words for p, words in bench.cluster.processes().items() if words == "sleep 1000"}
    return {**bench.cluster.left(), **sleeping}


def nothing_is_left(bench: Bench) -> None:
    eventually(lambda: not left(bench), f"nothing of {left(bench)} is left", within=SOON)


def test_a_job_with_eight_pending_slots_does_not_wait_for_them(bench: Bench, spark: SparkContext):
    job = bench.run(spark, num_proc=6, max_num_proc=14)
    bench.training(6)
    groups = spark.statusTracker()
    assert len(groups.getActiveJobsIds()) == 14
    bench.finish()
    assert len(job.results()) == 6
    assert not groups.getActiveJobsIds()
    assert not bench.cluster.left(), "no late child"


def test_a_job_that_is_cancelled_leaves_nothing(bench: Bench, free: None):
    program = bench.program(LEAVES_A_CHILD)
    bench.training(4)
    assert len(left(bench)) > 8
    os.kill(program.process.pid, signal.SIGINT)
    nothing_is_left(bench)
    assert "KeyboardInterrupt" in program.fail(-signal.SIGINT)


def test_an_end_is_quiet(bench: Bench, free: None):
    """Neither Spark's log nor Python has anything to say of it: at the end of a job with pending slots, and at Ctrl-C."""
    program = bench.program("""
        sc = context()
        sc.setLogLevel("WARN")
        for last in (3, None):
            elasticrun.spark.run(train, (FOLDER, last), num_proc=6, max_num_proc=10, env=MARK)
            print("ENDED")
    """)
    program.until("ENDED")
    first = len(bench.steps())
    eventually(lambda: len(bench.steps()) > first, "the second job trains")
    # As a terminal does: all processes of the program get it.
    os.killpg(program.process.pid, signal.SIGINT)
    text = program.fail(-signal.SIGINT)
    nothing_is_left(bench)
    assert "Failed to cancel job group" not in text, text
    assert "is lost and asked for again" not in text, text
    assert text.count("Traceback (most recent call last)") == 1, text


def test_a_program_that_is_killed_leaves_nothing(bench: Bench, free: None):
    program = bench.program(LEAVES_A_CHILD)
    bench.training(4)
    os.kill(program.process.pid, signal.SIGKILL)
    nothing_is_left(bench)


def test_a_jvm_that_is_killed_leaves_nothing(bench: Bench, free: None):
    program = bench.program(LEAVES_A_CHILD)
    bench.training(4)
    (jvm,) = (
        pid
        for pid, words in bench.cluster.processes().items()
        if "SparkSubmit" in words and parent(pid) == program.process.pid
    )
    os.kill(jvm, signal.SIGKILL)
    nothing_is_left(bench)
    assert "Spark's JVM has ended" in program.fail()


def test_the_jvm_of_spark_submit_that_is_killed_leaves_nothing(bench: Bench, free: None):
    """There it is the JVM that starts the program."""
    program = bench.program(LEAVES_A_CHILD, submit=True)
    bench.training(4)
    os.kill(program.process.pid, signal.SIGKILL)
    nothing_is_left(bench)
    script = str(bench.folder)
    eventually(lambda: not any(script in words for words in bench.cluster.processes().values()), "the program ends")


def test_a_context_that_is_stopped_ends_the_job_and_begins_none(bench: Bench, free: None):
    program = bench.program("""
        import threading
        from elasticrun.errors import ElasticrunError
        sc = context()
        def stop():
            while not os.path.exists(FOLDER + "/stop"):
                time.sleep(0.02)
            sc.stop()
        threading.Thread(target=stop).start()
        for moment in ("under way", "before"):
            try:
                elasticrun.spark.run(train, (FOLDER,), num_proc=4, env=MARK, spark_context=sc)
            except ElasticrunError as error:
                print("STOPPED", moment, error)
    """)
    bench.training(4)
    (bench.folder / "stop").touch()
    nothing_is_left(bench)
    assert "the SparkContext was stopped: the job was ended with it" in program.until("STOPPED under way")
    assert "the SparkContext was stopped: make another one" in program.until("STOPPED before")
    program.succeed()


def test_a_driver_that_is_killed_leaves_nothing(bench: Bench, spark: SparkContext):
    from elasticrun.errors import JobError

    job = bench.run(spark, num_proc=4)
    bench.training(4)
    (driver,) = (p for p, words in bench.cluster.left().items() if "elasticrun run" in words)
    os.kill(driver, signal.SIGKILL)
    nothing_is_left(bench)
    with pytest.raises(JobError) as raised:
        job.results()
    assert raised.value.exit_code == -signal.SIGKILL
