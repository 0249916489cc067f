"""Scripts that do not let an interrupt out at once."""

from __future__ import annotations

from support.events import WATCH_ABORT


def test_no_commit_is_made_after_an_interrupt_that_was_caught(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --failure-domain slot --blacklist forever",
        WATCH_ABORT
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round > 1:
        return
    e.barrier()
    if e.rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    assert over.wait(60)
    # The first one is made, since the worker was on its way to it.
    for state.step in (5, 6, 7):
        try:
            state.commit()
        except e.WorkersFailed as error:
            interrupt = error
            print("CAUGHT")
    raise interrupt

train(state)
""",
    ).succeed()
    assert text.count("CAUGHT") == 6
    assert [entry[1:] for entry in start.rounds(text)[3:]] == [(0, 2, 5), (1, 2, 5)], text


def test_a_worker_that_is_told_to_stop_before_it_has_left_its_round_ends_quietly(start):
    change = start.hosts("localhost:1\n127.0.0.1:1\n")
    job = start.count(
        f"-np 2 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms"
        " --interrupt-timeout 10s --abort-timeout 10s",
        """
from elasticrun import _native

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    try:
        while e.size() > 1:
            e.barrier()
            state.step += 1
            print("STEP", state.step)
            state.commit()
    except e.HostsUpdated:
        if e.rank() == 1:
            try:
                # No worker sets the key: the wait ends when this worker is told to stop.
                _native.job_keys().get("never", 60)
            except e.errors.Stopped:
                print("TOLD")
        raise

try:
    train(state)
except SystemExit as end:
    print("ENDED", end.code)
    raise
""",
    )
    job.until("STEP 5")
    change("localhost:1\n")
    text = job.succeed()
    assert "[1]<stdout>:TOLD" in text, text
    assert "[1]<stdout>:ENDED 0" in text, text
    assert "Traceback" not in text, text
