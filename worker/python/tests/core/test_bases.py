"""The state with which a round begins, after several failures at once."""

from __future__ import annotations

#: `die_with_host()` also ends the agent, so what it keeps is lost.
PRELUDE = """
from elasticrun import _native, lifecycle
slot, generation = (int(os.environ[name]) for name in ("ELASTICRUN_LOCAL_RANK", "ELASTICRUN_GENERATION"))
host = os.environ["ELASTICRUN_HOST"]
keys = _native.job_keys()

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def die_with_host():
    os.kill(os.getppid(), signal.SIGKILL)
    die()

def meet(where, others):
    keys.set(f"{where} {host} {slot}", b"")
    for other in others:
        keys.get(f"{where} {other}", 60)
"""


def test_rank_0_begins_with_the_base_if_its_restore_gives_something_older(start):
    text = start.count(
        "-np 3 --min-np 2 -H localhost:1,127.0.0.1:1,127.0.0.2:1 --blacklist forever",
        """
class Own(e.ObjectState):
    def restore(self):
        self.step = 1

state = Own(step=0)
state.register_reset_callbacks([lambda: print("RESET AT", state.step)])

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        e.barrier()
        if e.rank() != 0:
            state.step = 5
            state.commit()
        if e.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        e.barrier()

train(state)
""",
    ).succeed()
    assert text.count("RESET AT 1") == 2, text
    assert [entry[1:] for entry in start.rounds(text)[3:]] == [(0, 2, 5), (1, 2, 5)], text


def test_what_callbacks_changed_is_kept_by_a_newcomer_that_has_received_it(start):
    text = start.count(
        "-np 2 --min-np 2 -H localhost:1,127.0.0.1:1 --max-restarts 1 --blacklist-cooldown-range 0 1",
        PRELUDE
        + """
state = e.ObjectState(step=0, rate=1.0)
def reset():
    state.rate *= 10
state.register_reset_callbacks([reset])
others = {"localhost": "127.0.0.1 0", "127.0.0.1": "localhost 0"}

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        state.step = 3
        state.commit()
        e.barrier()
        if e.rank() == 1:
            die()
        e.barrier()
    if e.world().round == 2:
        # Both hold the base: the memory of the newcomer outlives it, that of the survivor is lost with its host.
        meet("round 2", [others[host]])
        die_with_host() if e.rank() == 0 else die()
    print("RATE", state.rate)

train(state)
""",
    ).succeed()
    assert [entry[1:] for entry in start.rounds(text)[-2:]] == [(0, 2, 3), (1, 2, 3)], text
    assert text.count("RATE 10.0") == 2, text


def test_without_a_commit_only_rank_0_makes_the_first(start):
    text = start.count(
        "-np 4 --min-np 1 -H localhost:1,127.0.0.1:3 --failure-domain slot --blacklist forever",
        PRELUDE
        + """
rounds = 0

class Made:
    def __init__(self, by):
        self.by = by
    def __reduce__(self):
        if rounds == 2 and slot == 0:
            # Rank 0 makes the first commit, while rank 1 waits for the exchange of commits.
            keys.get("rank 1 syncs", 60)
            keys.set("rank 0 commits", b"")
        return Made, (self.by,)

class Own(e.ObjectState):
    def sync(self):
        if rounds == 2 and slot == 1:
            keys.set("rank 1 syncs", b"")
        super().sync()

state = Own(made=Made(slot))
# Only then the state of survivors may count.
state.register_reset_callbacks([lambda: None])
join = lifecycle.join

def join_and_die():
    global rounds
    if (host, slot, rounds) == ("127.0.0.1", 0, 2):
        die()
    joined = join()
    rounds += 1
    if rounds == 1:
        # Rank 0 commits nothing in round 1.
        others = [f"127.0.0.1 {other}" for other in range(3)]
        meet("round 1", others if host == "localhost" else [])
        if host == "localhost":
            die_with_host()
    if (slot, rounds) == (2, 2):
        keys.get("rank 0 commits", 60)
        die()
    return joined

lifecycle.join = join_and_die

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "OF", e.size(), "MADE BY", state.made.by)

train(state)
""",
    ).succeed()
    assert [line.split(" OF ")[1] for line in text.splitlines() if "MADE BY" in line] == ["1 MADE BY 0"], text
