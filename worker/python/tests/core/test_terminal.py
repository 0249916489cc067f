"""What a user does at a terminal: Ctrl-Z and fg."""

from __future__ import annotations

import re
import sys
import time

import pytest
from support.jobs import TIMEOUT
from support.terminal import Terminal

from elasticrun import _binary

#: Seconds.
HEARTBEAT_TIMEOUT, ORPHAN_TIMEOUT = 1.0, 0.5
QUICK = f"--heartbeat-interval 0.1 --heartbeat-timeout {HEARTBEAT_TIMEOUT} --orphan-timeout {ORPHAN_TIMEOUT}"

#: Makes steps until there is a file "finish", and keeps in another one which step it has made.
TRAIN = """
import os
import elasticrun as e

e.init()
state = e.ObjectState(step=0, count=0.0, last=0.0)

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    while not state.last:
        state.count += e.allreduce(1.0)
        state.step += 1
        state.last = e.allreduce(float(os.path.exists("finish")), op=e.Max)
        if e.rank() == 0:
            with open("steps.new", "w") as steps:
                steps.write(str(state.step))
            os.replace("steps.new", "steps")
        state.commit()
    print("MADE", state.step, "COUNTED", state.count)

train(state)
"""


@pytest.mark.parametrize(
    "flags", ["-np 2", "-np 2 --min-np 1 -H localhost:1,127.0.0.1:1 --blacklist forever"], ids=["standard", "elastic"]
)
def test_a_job_that_was_stopped_by_ctrl_z_goes_on_with_fg(flags, tmp_path):
    """The terminal stops only the driver; its agents and workers are in separate sessions."""
    script, steps = tmp_path / "train.py", tmp_path / "steps"
    script.write_text(TRAIN)

    def made():
        return int(steps.read_text())

    def until_made(count):
        until(lambda: made() >= count, terminal)

    with Terminal(tmp_path) as terminal:
        terminal.type(f"{_binary.find()} {flags} {QUICK} {sys.executable} {script}\n")
        terminal.until("ROUND 1 ")
        terminal.until("ROUND 1 ")
        until(steps.exists, terminal)
        until_made(3)
        terminal.type("\x1a")
        terminal.until("Stopped")
        # Longer than every timeout: that is the fault. Workers may train on meanwhile, or wait for the driver.
        stopped = time.monotonic()
        until(lambda: time.monotonic() - stopped > 2 * (HEARTBEAT_TIMEOUT + ORPHAN_TIMEOUT), terminal)
        before = made()
        terminal.type("fg; echo EXIT $?\n")
        assert "stood still" in terminal.until(r"the driver stood still for|EXIT \d")[0], terminal.text
        # The driver reports what happened while it was stopped within one more timeout.
        continued = time.monotonic()
        until(lambda: time.monotonic() - continued > HEARTBEAT_TIMEOUT, terminal)
        until_made(before + 3)
        (tmp_path / "finish").touch()
        ended = terminal.until(r"EXIT (\d+)")
        text = terminal.text
    assert ended[1] == "0", text
    assert re.findall(r"ROUND (\d) RANK \d OF (\d) FROM (\d+)", text) == [("1", "2", "0")] * 2, text
    one, other = re.findall(r"MADE (\d+) COUNTED \1\.0", text)
    assert one == other, text
    assert not re.search("failed|silent|out for good|stopping", text), text


def until(holds, terminal):
    """Waits until ``holds()``, which the end of the job makes impossible."""
    begun = time.monotonic()
    while not holds():
        assert not re.search(r"EXIT \d", terminal.text), terminal.text
        assert time.monotonic() - begun < TIMEOUT, terminal.text
        time.sleep(0.01)
