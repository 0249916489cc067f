"""User code in the run loop: callbacks, errors and custom states."""

from __future__ import annotations

import os

import pytest
from support import newcomers


def test_newcomers_get_what_reset_callbacks_change(start):
    text = start.count(
        "-np 3 --min-np 3 -H localhost:3 --blacklist-cooldown-range 0 1",
        """
import numpy as np
state = e.ArrayState(step=0, count=0.0, rate=1.0, weights=np.zeros(2))
weights = state.weights
# As the first step of a script: newcomers make it here, survivors in their callback.
def first_step():
    print("FIRST", e.allreduce(1.0, e.Sum))
first_step()
def reset():
    # Others than rank 0 may have been one commit behind.
    assert state.step == weights[0] and state.step in ((5,) if e.rank() == 0 else (4, 5))
    assert state.weights is weights
    first_step()
    state.rate *= 10
    weights[1] = 7
state.register_reset_callbacks([reset])

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 10:
        e.barrier()
        state.step += 1
        weights[0] += 1
        state.commit()
        if e.world().round == 1 and e.rank() == 0 and state.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    print("STATE", state.rate, state.weights.tolist(), state.weights is weights)
train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, rank, 3, 5) for rank in range(3)], text
    assert text.count("STATE 10.0 [10.0, 7.0] True") == 3, text
    assert text.count("FIRST 3.0") == 6


@pytest.mark.parametrize("callbacks", [False, True])
def test_survivors_begin_with_the_commit_and_not_with_what_a_failure_has_left(callbacks, start):
    register = "state.register_reset_callbacks([lambda: print('RESET AT', state.step)])" if callbacks else ""
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --failure-domain slot --blacklist forever",
        register
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        state.step = 3
        state.commit()
        e.barrier()
        state.step = 999
        if e.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        e.barrier()
train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, 0, 2, 3), (2, 1, 2, 3)], text
    assert text.count("RESET AT 3") == 2 * callbacks and "RESET AT 999" not in text, text


def test_callbacks_of_survivors_count_when_only_the_dead_had_made_the_commit(start):
    text = start.count(
        "-np 3 --min-np 3 -H localhost:3 --blacklist-cooldown-range 0 1",
        """
state = e.ObjectState(step=0, rate=1.0)
def reset():
    # Rank 0 is at the commit of the one that died, the other where it was itself.
    assert state.step == (5 if e.rank() == 0 else 4), state.step
    state.rate *= 10
state.register_reset_callbacks([reset])

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 10:
        e.barrier()
        state.step += 1
        if e.world().round == 1 and e.rank() > 0 and state.step == 5:
            # Rank 0 never comes.
            e.barrier()
        state.commit()
        if e.world().round == 1 and e.rank() == 0 and state.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
    print("STATE", state.rate)
train(state)
""",
    ).succeed()
    assert start.rounds(text)[3:] == [(2, rank, 3, 5) for rank in range(3)], text
    assert text.count("STATE 10.0") == 3, text


def test_a_wait_for_host_messages_ends_when_hosts_change(start):
    change = start.hosts("localhost:1\n")
    job = start.count(
        f"-np 1 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms --last-call 50ms",
        """
told = []
e.notifications.on_hosts_updated(told.append)

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.size() == 1:
        while state._host_messages.empty():
            time.sleep(0.01)
        timestamp, result = state._host_messages.get()
        assert abs(timestamp - time.time()) < 60 and result == 3
        assert state._last_updated_timestamp == timestamp and told == [1]
    while e.size() == 1:
        state.commit()
    assert state._host_messages.empty()
train(state)
""",
    )
    job.until("ROUND 1")
    change("localhost:2\n")
    assert [entry[:3] for entry in start.rounds(job.succeed())] == [(1, 0, 1), (2, 0, 2), (2, 1, 2)]


def test_an_exception_in_a_reset_callback_fails_the_worker_with_its_traceback(start):
    text = start.count(
        "-np 3 --min-np 1 -H localhost:3 --blacklist forever",
        """
def reset():
    raise KeyError("my callback")
state.register_reset_callbacks([reset])
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and e.rank() == 2 and state.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
train(state, 20, die)
""",
    ).fail(1)
    assert "KeyError: 'my callback'" in text
    assert text.splitlines()[-1].startswith("elasticrun: ")


def test_an_error_of_the_users_own_passes_and_fails_the_job(start):
    text = start.count(
        "-np 2",
        """
@e.elastic.run
def train(state):
    raise ValueError("mine")
train(state)
""",
    ).fail(1)
    assert "ValueError: mine" in text


def test_what_is_no_state_is_refused(start):
    text = start.alone("""
        import elasticrun as e
        e.init()
        train = e.elastic.run(lambda state: print("CALLED"))
        for wrong in (5, None, e.ObjectState):
            try:
                train(wrong)
            except TypeError as error:
                print(error)
        train(e.ObjectState(step=0))
    """)
    for name in ("int", "NoneType", "type"):
        assert f"is its state, such as an ObjectState, not an object of type {name}" in text
    assert text.count("CALLED") == 1


def test_an_interrupt_that_was_wrapped_is_one(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
@e.elastic.run
def train(state):
    def die():
        if e.world().round == 1 and e.rank() == 2 and state.step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        return count(state, 10, die)
    except e.WorkersFailed as error:
        raise ValueError("in a framework") from error
print("COUNTED", train(state))
""",
    ).succeed()
    assert text.count("COUNTED 10.0") == 2
    assert "WorkersFailed again" not in text


def test_an_interrupt_keeps_nothing_of_its_round_alive(start):
    """Here it is kept by the program; and what a cleared frame runs is a closure, as each call of a torch module is."""
    text = start.count(
        "-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever",
        """
import gc, weakref

class Model:
    def __call__(self, step):
        def inner():
            self.step(step)
        inner()

    def step(self, step):
        try:
            # Returns when both ranks are here, so the loss is noticed here too.
            e.barrier()
            if e.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            e.barrier()
        except e.WorkersFailed as error:
            errors.append(error)
            raise RuntimeError("in a framework") from error

models, errors = [], []

@e.elastic.run
def train(state):
    if e.world().round > 1:
        gc.collect()
        print("ALIVE", [model() for model in models], "ERROR", errors[0])
        return
    model = Model()
    models.append(weakref.ref(model))
    model(1)
train(state)
""",
    ).succeed()
    assert "ALIVE [None] ERROR a worker of the round failed" in text, text


def test_an_interrupt_that_is_caught_is_warned_of_once(start, tmp_path):
    os.mkfifo(tmp_path / "committed")
    text = start.count(
        "-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever",
        f"""
committed = "{tmp_path}/committed"
"""
        """
@e.elastic.run
def train(state):
    if e.world().round > 1:
        return e.allreduce(1.0)
    state.commit()
    # Returns when the other rank opens it too, so no commit finds the round over.
    open(committed, "r" if e.rank() == 1 else "w").close()
    if e.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for call in (e.barrier, lambda: e.allreduce(1.0), lambda: e.broadcast_object(1, 1), lambda: e.allgather_object(1)):
        try:
            call()
        except Exception as error:
            caught = error
            print("CAUGHT", type(error).__name__)
    raise caught
print("COUNTED", train(state))
""",
    ).succeed()
    assert text.count("CAUGHT WorkersFailed") == 4
    assert text.count("WorkersFailed again in round 1: the first one has not reached elastic.run") == 1, text
    assert "COUNTED 1.0" in text


def test_a_state_in_horovods_style(start):
    text = start.job(
        "-np 3 --min-np 2 -H localhost:3 --blacklist-cooldown-range 0 1",
        """
        import os, signal
        import elasticrun as e
        e.init()

        class Mine(e.State):
            def __init__(self):
                super().__init__(bcast_object=e.broadcast_object, get_rank=e.rank)
                self.step = 0
                self.saved = 0
                self.calls = []
            def save(self):
                self.saved = self.step
            def restore(self):
                self.calls.append("restore")
                self.step = self.saved
            def sync(self):
                self.calls.append("sync")
                self.step = e.broadcast_object(self.step)
                self.save()
            def reset(self):
                self.calls.append("reset")

        @e.elastic.run
        def train(state):
            while state.step < 12:
                e.barrier()
                state.step += 1
                state.commit()
                if e.world().round == 1 and e.rank() == 0 and state.step == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
            return state.calls

        state = Mine()
        print("CALLS", train(state), state.step)
        """,
    ).succeed()
    assert text.count("CALLS ['sync', 'restore', 'reset', 'sync'] 12") == 2


def test_a_subclass_that_adds_to_the_methods(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
class Mine(e.ObjectState):
    calls = []
    def save(self):
        self.calls.append("save"); super().save()
    def restore(self):
        self.calls.append("restore"); super().restore()
    def sync(self):
        self.calls.append("sync"); super().sync()
    def on_reset(self):
        self.calls.append("on_reset"); super().on_reset()
state = Mine(step=0, count=0.0)
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and e.rank() == 2 and state.step == 2:
        os.kill(os.getpid(), signal.SIGKILL)
print("COUNTED", train(state, 3, die), " ".join(Mine.calls))
""",
    ).succeed()
    assert text.count("COUNTED 3.0 save sync save save restore on_reset sync save") == 2


def test_a_sync_in_the_midst_of_a_round(start):
    text = start.job(
        "-np 2",
        """
        import numpy as np
        import elasticrun as e
        e.init()
        state = e.ArrayState(weights=np.zeros(3), step=0)
        weights = state.weights

        @e.elastic.run
        def train(state):
            weights[:] = e.rank() + 1
            state.step = e.rank() + 1
            state.sync()
            print("SYNCED", weights.tolist(), state.step, state.weights is weights)

        train(state)
        """,
    ).succeed()
    assert text.count("SYNCED [1.0, 1.0, 1.0] 1 True") == 2


def test_updates_are_looked_for_at_each_nth_commit_only(start):
    change = start.hosts("localhost:1\n")
    job = start.count(
        f"-np 1 --min-np 1 --host-discovery-script {start.discovery} --discovery-interval 50ms --last-call 50ms",
        """
state.set_check_hosts_added_delay(10)
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while e.size() == 1:
        state.step += 1
        print("STEP", state.step)
        state.commit()
train(state)
""",
    )
    job.until("STEP 15")
    change("localhost:2\n")
    assert all(step % 10 == 0 for *_, step in start.rounds(job.succeed()))


def test_callbacks_for_aborts(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:3 --blacklist forever",
        """
import threading
aborted = threading.Event()
def failing(round):
    raise ValueError("a callback")
e.notifications.on_abort(failing)
def tell(round):
    # One write: the training thread prints at the same time.
    os.write(1, b"ABORTED %d\\n" % round)
    aborted.set()
remove = e.notifications.on_abort(tell)
train = e.elastic.run(count)
def die():
    if e.world().round == 1 and e.rank() == 2 and state.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
train(state, 10, die)
assert aborted.wait(10)
remove()
""",
    ).succeed()
    assert text.count("ABORTED 1") == 2
    assert "a callback for aborted rounds failed" in text


def test_nothing_of_a_failed_round_is_alive_in_the_next(start):
    text = start.count(
        "-np 2 --min-np 1 -H localhost:2 --failure-domain slot --blacklist forever",
        """
import weakref
class Model:
    pass
old, kept = [], []

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    for model in old:
        assert model() is None
    model = Model()
    old.append(weakref.ref(model))
    try:
        state.commit()
        if e.world().round == 1 and e.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while e.size() == 2:
            e.barrier()
    except Exception as error:
        # As who logs it.
        kept.append(error)
        raise RuntimeError("a step") from error
    assert isinstance(kept[0], e.WorkersFailed) and len(old) == 2
    print("ALONE")
train(state)
""",
    ).succeed()
    assert text.count("ALONE") == 1


CALLBACKS = {
    "none": "",
    "a reset callback": "state.register_reset_callbacks([lambda: print('RESET FROM', state.step)])",
}


@pytest.mark.parametrize("callbacks", CALLBACKS)
def test_a_newcomer_that_loses_another_in_its_first_sync_goes_on_from_the_base(callbacks, start):
    text = start.count(
        newcomers.FLAGS,
        newcomers.PRELUDE
        + CALLBACKS[callbacks]
        + """
# Commits alone: an interrupt would come between them and the end.
state.set_check_hosts_added_delay(1000)

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 20:
        if state.step == 10:
            die_together()
        state.count += e.allreduce(1.0)
        state.step += 1
        state.commit()
    print("COUNTED", state.count)
train(state)
""",
    ).succeed()
    assert [entry[1:] for entry in start.rounds(text)] == [(0, 2, 0), (1, 2, 0), (0, 2, 10), (1, 2, 10)], text
    assert text.count("COUNTED 20.0") == 2, text
    # The callback of the interrupted worker sees the state that it continues from.
    assert "RESET FROM 0" not in text, text


OWN = """
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
state = Own()
state.set_check_hosts_added_delay(1000)
"""
LOST = "was kept by workers that are gone"


def test_newcomers_do_not_begin_anew_if_the_state_went_with_the_workers_that_kept_it(start):
    text = start.count(
        newcomers.FLAGS,
        newcomers.PRELUDE
        + OWN
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 20:
        if state.step == 10:
            die_together()
        e.barrier()
        state.step += 1
        state.commit()
train(state)
""",
    ).fail(1)
    assert "StateError" in text and LOST in text, text
    assert all(entry[0] == 1 for entry in start.rounds(text)), text


def test_a_newcomer_does_not_begin_anew_if_the_survivor_dies_before_it_has_told_its_state(start):
    text = start.count(
        "-np 2 --min-np 2 -H localhost:2 --blacklist-cooldown-range 0 1",
        OWN
        + """
class Dies(Own):
    def sync(self):
        if e.world().round == 2 and self.step:
            os.kill(os.getpid(), signal.SIGKILL)
        super().sync()
state = Dies()

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while state.step < 20:
        e.barrier()
        state.step += 1
        state.commit()
        if e.world().round == 1 and e.rank() == 1 and state.step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
train(state)
""",
    ).fail(1)
    assert "StateError" in text and LOST in text, text
    assert all(entry[0] == 1 for entry in start.rounds(text)), text


def test_a_rank_that_finished_before_others_is_named(start):
    text = start.count(
        "-np 2 --min-np 2",
        """
@e.elastic.run
def train(state):
    for step in range(3 + e.rank()):
        e.allreduce(1.0)

train(e.ObjectState(step=0))
""",
    ).fail()
    assert "[1]<stderr>:allreduce (float64[], average): rank 0 has ended or left its training" in text
