"""Jobs whose second round of processes has only newcomers, one of which dies before the state is taken over."""

from __future__ import annotations

#: Two slots. All workers of the first round fail by themselves, and the job starts again from their last commit.
FLAGS = "-np 2 --min-np 2 -H localhost:2 --max-restarts 1 --blacklist-cooldown-range 0 1"

#: ``die_together()`` ends all first processes of the slots, once both are there. The second process of slot 1 dies as
#: soon as it has joined a round: the one of slot 0 has fetched the base by then, or does so, and has not seen it.
PRELUDE = """
import os, signal
from elasticrun import _native, lifecycle

slot, generation = (int(os.environ[name]) for name in ("ELASTICRUN_LOCAL_RANK", "ELASTICRUN_GENERATION"))
join = lifecycle.join

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def join_and_die():
    joined = join()
    if (slot, generation) == (1, 2):
        die()
    return joined

lifecycle.join = join_and_die

def die_together():
    if generation == 1:
        keys = _native.job_keys()
        keys.set(f"slot {slot} is there", b"")
        keys.get(f"slot {1 - slot} is there", 60)
        die()
"""
