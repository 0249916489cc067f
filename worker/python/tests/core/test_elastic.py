"""Changes of the world in real jobs: failures, growth, removal."""

from __future__ import annotations

from support.events import WATCH_ABORT


def test_survivors_of_a_sigkill_go_on_from_the_newest_commit(start):
    text = start.count(
        "-np 4 --min-np 2 -H localhost:4 --failure-domain slot --blacklist forever",
        """
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and e.rank() == 2 and state.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
print("COUNTED", train(state, 20, die))
""",
    ).succeed()
    assert start.rounds(text) == [
        *[(1, rank, 4, 0) for rank in range(4)],
        *[(2, rank, 3, 7) for rank in range(3)],
    ]
    assert text.count("COUNTED 20.0") == 3


def test_a_commit_that_survivors_are_on_their_way_to_is_kept(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --failure-domain slot --blacklist forever",
        WATCH_ABORT
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        e.barrier()
        if e.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        state.step = 5
        assert over.wait(60)
        state.commit()
        raise AssertionError("the round is over")

train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 5), (2, 1, 2, 5)]


def test_a_commit_is_refused_once_an_operation_was_cut_short(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --failure-domain slot --blacklist forever",
        WATCH_ABORT
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        state.step = 3
        state.commit()
        e.barrier()
        if e.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        cut = e.allreduce_async(1.0)
        assert over.wait(60)
        while not e.poll(cut):
            time.sleep(0.01)
        # The result was read without a wait, so a script may have used it by now.
        state.step = 999
        state.commit()
        raise AssertionError("the commit was made")

train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 3), (2, 1, 2, 3)], text


def test_rank_0_stays_rank_0_although_another_survivor_has_committed_once_more(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:1,127.0.0.1:1,127.0.0.2:1 --blacklist forever",
        """
first = []

@e.elastic.run
def train(state):
    first.append(e.rank())
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        e.barrier()
        if e.rank() != 0:
            state.step = 5
            state.commit()
        if e.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        e.barrier()
    print("WAS", first[0], "IS", e.rank())

train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 5), (2, 1, 2, 5)]
    assert "WAS 0 IS 0" in text and "WAS 1 IS 1" in text


def test_a_state_that_only_its_process_keeps_is_that_of_the_newest_commit(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:1,127.0.0.1:1,127.0.0.2:1 --blacklist forever",
        """
from elasticrun import _native

class Own(e.elastic.State):
    def __init__(self):
        super().__init__()
        self.step = self.kept = 0
    def save(self):
        self.kept = self.step
    def restore(self):
        self.step = self.kept
    def sync(self):
        self.step = e.broadcast_object(self.step, 0)
        self.save()

first = []

@e.elastic.run
def train(state):
    first.append(e.rank())
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        e.barrier()
        if e.rank() == 1:
            state.step = 5
            state.commit()
            _native.job_keys().set("committed", b"yes")
        elif e.rank() == 2:
            _native.job_keys().get("committed", 60)
            os.kill(os.getpid(), signal.SIGKILL)
        e.barrier()
    print("WAS", first[0], "IS", e.rank())

train(Own())
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 5), (2, 1, 2, 5)]
    assert "WAS 1 IS 0" in text and "WAS 0 IS 1" in text


def test_a_new_worker_takes_the_place_of_a_killed_one(start):
    text = start.count(
        "-np 2 --min-np 2 -H localhost:2 --blacklist-cooldown-range 0 1",
        """
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and e.rank() == 0 and state.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
print("COUNTED", train(state, 20, die))
""",
    ).succeed()
    assert start.rounds(text) == [(1, 0, 2, 0), (1, 1, 2, 0), (2, 0, 2, 7), (2, 1, 2, 7)]
    assert text.count("COUNTED 20.0") == 2


def test_hosts_that_come_are_used_at_the_next_commit_and_nothing_is_done_again(start):
    change = start.hosts("localhost:1\n")
    job = start.count(
        f"-np 1 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms --last-call 50ms",
        """
steps = []
state.register_reset_callbacks([lambda: print("RESET", e.rank(), e.size())])

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while e.size() < 2:
        state.step += 1
        steps.append(state.step)
        print("STEP", state.step)
        e.barrier()
        state.check_host_updates() if state.step % 2 else state.commit()
    assert steps == sorted(set(steps)) and (e.rank() or len(steps) == state.step), steps
    return state.step

print("DONE", train(state))
""",
    )
    job.until("STEP 5")
    change("localhost:1\n127.0.0.1:1\n")
    text = job.succeed()
    first, *second = start.rounds(text)
    assert first == (1, 0, 1, 0)
    assert [(round, rank, size) for round, rank, size, _ in second] == [(2, 0, 2), (2, 1, 2)]
    assert len({step for *_, step in second}) == 1
    assert [line.split(":")[1] for line in text.splitlines() if "RESET" in line] == ["RESET 0 2"]


def test_a_removed_worker_ends_quietly(start):
    change = start.hosts("localhost:1\n127.0.0.1:1\n")
    job = start.count(
        f"-np 2 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms",
        """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while e.size() > 1:
        e.barrier()
        state.step += 1
        print("STEP", state.step)
        state.commit()

try:
    train(state)
    print("TRAINED")
except SystemExit as end:
    print("ENDED", end.code)
    raise
""",
    )
    job.until("STEP 5")
    change("localhost:1\n")
    text = job.succeed()
    assert "[1]<stderr>:elasticrun: this worker" in text
    assert "[1]<stdout>:ENDED 0" in text
    assert "[0]<stdout>:TRAINED" in text
    assert "Traceback" not in text


def test_arrays_and_samplers_go_on_in_a_new_world(start):
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
        import os, signal
        import numpy as np
        import elasticrun as e
        e.init()
        sampler = e.ElasticSampler(1000, seed=7)
        state = e.ArrayState(seen=np.zeros(1000, "i8"), sampler=sampler)
        seen = state.seen

        @e.elastic.run
        def train(state):
            for batch in sampler.batches(16):
                own = np.zeros(1000, "i8")
                own[np.frombuffer(batch.indices, "i8")] = 1
                total = e.allreduce(own, e.Sum)
                assert total.sum() == batch.global_size
                seen[:] += total
                if e.world().round == 1 and e.rank() == 1 and sampler.position > 500:
                    os.kill(os.getpid(), signal.SIGKILL)
                sampler.record(batch)
                state.commit()
            assert state.seen is seen and (seen == 1).all(), seen
            return e.size()

        print("SIZE", train(state))
        """,
    ).succeed()
    assert text.count("SIZE 2") == 2


def test_workers_that_never_commit_begin_again_after_a_failure(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 10:
        if e.world().round == 1 and e.rank() == 1 and state.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        state.count += e.allreduce(1.0)
        state.step += 1
    return state.count
print("COUNTED", train(state))
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 0), (2, 1, 2, 0)]
    assert text.count("COUNTED 10.0") == 2


def test_a_worker_that_comes_to_no_boundary_is_left_behind(start):
    change = start.hosts("localhost:2\n")
    job = start.count(
        f"-np 2 --min-np 1 --max-np 3 --host-discovery-script {start.discovery} --discovery-interval 50ms"
        " --last-call 50ms --interrupt-timeout 1s --abort-timeout 1s --failure-domain slot",
        """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1 and e.rank() == 1:
        signal.pause()
    while e.world().round == 1:
        state.step += 1
        state.commit()
    return state.step
print("DONE", train(state) > 0)
""",
    )
    job.until("ROUND 1 RANK 0")
    change("localhost:2\n127.0.0.1:1\n")
    text = job.succeed()
    assert "DONE True" in text
    assert len([round for round, *_ in start.rounds(text) if round > 1]) == 2, text


def test_all_workers_lost_with_their_state_kept(start):
    text = start.count(
        "-np 2 --min-np 2 -H localhost:2 --max-restarts 1 --blacklist-cooldown-range 0 1",
        """
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and state.step == 6:
        os._exit(3)
print("COUNTED", train(state, 10, die))
""",
    ).succeed()
    assert [entry for entry in start.rounds(text) if entry[0] > 1 and entry[3] >= 6]
    assert text.count("COUNTED 10.0") == 2
