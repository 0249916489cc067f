"""What a boundary does while the job asks for the common boundary, and after the lease of an agent."""

from __future__ import annotations

import os
import re
import signal

from support.events import WATCH_HOLD

from elasticrun import _binary

DISCOVERED = "--host-discovery-script {} --discovery-interval 50ms --last-call 50ms"


def test_a_worker_stays_at_a_boundary_until_the_common_one_is_known(start, tmp_path):
    change = start.hosts("localhost:1\n127.0.0.1:1\n127.0.0.2:1\n")
    job = start.count(
        f"-np 3 --min-np 1 {DISCOVERED.format(start.discovery)} --interrupt-timeout 3s --abort-timeout 3s"
        " --heartbeat-timeout 4s --blacklist forever",
        WATCH_HOLD + f"""
stopped = "{tmp_path}/stopped"
"""
        """
def stop_agent():
    agent = os.getppid()
    os.kill(agent, signal.SIGSTOP)
    while open(f"/proc/{agent}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round > 1:
        return
    e.barrier()
    if e.rank() == 1:
        # Its host does not tell how far it is.
        stop_agent()
        open(stopped, "w").close()
        signal.pause()
    while e.rank() == 2:
        state.check_host_updates()
    while not os.path.exists(stopped):
        time.sleep(0.01)
    print("READY")
    assert held.wait(60)
    state.check_host_updates()
    print("PASSED")
    os._exit(1)

train(state)
""",
    )
    job.until("READY")
    change("localhost:1\n127.0.0.1:1\n")
    text = job.succeed()
    assert "PASSED" not in text, text
    assert start.rounds(text)[-1][1:] == (0, 1, 0), text


def test_a_worker_that_is_behind_goes_on_to_the_boundary_of_the_first(start):
    change = start.hosts("localhost:2\n")
    job = start.count(
        f"-np 2 --min-np 2 {DISCOVERED.format(start.discovery)}",
        WATCH_HOLD
        + """
steps = []

def step():
    state.step += 1
    steps.append(state.step)
    state.commit()

@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round > 1:
        print("STEPS", len(steps))
        return
    for _ in range(1 if e.rank() else 5):
        step()
    print("READY")
    assert held.wait(60)
    while True:
        step()

train(state)
""",
    )
    for _ in range(2):
        job.until("READY")
    change("localhost:2\n127.0.0.1:1\n")
    text = job.succeed()
    # The agent asks a worker for its boundary, and reads then which one it may have passed. A worker that is told before the agent reads may
    # have passed one more.
    last = start.rounds(text)[-1][-1]
    assert last in (6, 7), text
    assert [entry[1:] for entry in start.rounds(text)[2:]] == [(rank, 3, last) for rank in range(3)], text
    # The last one is a newcomer.
    assert sorted(int(line.split()[-1]) for line in text.splitlines() if "STEPS" in line) == [0, last, last], text


def test_a_worker_passes_no_boundary_once_another_round_may_run(start, tmp_path):
    token, mark = tmp_path / "token", tmp_path / "another round runs"
    job = start.count(
        f"-np 2 --min-np 1 --launcher agent --listen 127.0.0.1:0 --join-token-file {token}"
        " --failure-domain slot --blacklist forever"
        " --heartbeat-interval 100ms --heartbeat-timeout 4s --orphan-timeout 500ms --elastic-timeout 60s",
        f"""
mark = "{mark}"
"""
        """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size(), "FROM", state.step)
    if e.world().round == 1:
        state.step = 5
        state.commit()
        e.barrier()
        if os.environ["ELASTICRUN_HOST"] == "two":
            os.kill(os.getpid(), signal.SIGKILL)
        e.barrier()
    while os.environ["ELASTICRUN_HOST"] == "one":
        # The only worker of round 2. The driver loses its host, and cannot know what it does.
        runs = os.path.exists(mark)
        state.check_host_updates()
        if runs:
            open(f"{mark} beside this", "w").close()
            signal.pause()
    open(mark, "w").close()
    while state.step < 2000:
        state.step += 1
        state.commit()
    print("RUNS")

train(state)
""",
    )
    address = re.search(r"--join HOST:(\d+)", job.until("--join"))

    def agent(name: str):
        words = ["agent", "--join", f"127.0.0.1:{address[1]}", "--join-token-file", str(token), "--slots", "1"]
        return start.command(str(_binary.find()), *words, "--host", name)

    one, _ = agent("one"), agent("two")
    job.until("RANK 0 OF 1")
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        job.until("its agent was silent")
        agent("three")
        job.until("RUNS")
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    text = job.succeed()
    assert [entry[1:] for entry in start.rounds(text)[2:]] == [(0, 1, 5), (0, 1, 5)], text
    assert not (tmp_path / "another round runs beside this").exists()
