"""Hosts that workers cannot reach."""

from __future__ import annotations

#: `unreachable()` lets nobody connect to this worker any more; it can still connect to others.
UNREACHABLE = """
import socket

def is_data_port(fd):
    try:
        tried = socket.socket(fileno=os.dup(fd))
    except OSError:
        return False
    with tried:
        return tried.family != socket.AF_UNIX and tried.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

def unreachable():
    (data_port,) = filter(is_data_port, map(int, os.listdir("/proc/self/fd")))
    with socket.socket() as closed:
        # Bound, so that no other program gets the port, but it does not listen.
        closed.bind(("127.0.0.1", 0))
        os.dup2(closed.fileno(), data_port)
"""


def test_a_newcomer_that_cannot_reach_a_member_is_left_out(start):
    change = start.hosts("localhost:1\n127.0.0.1:1\n")
    job = start.count(
        f"-np 2 --min-np 2 --host-discovery-script {start.discovery} --discovery-interval 50ms --last-call 50ms"
        " --heartbeat-timeout 4s --elastic-timeout 30s --blacklist forever",
        UNREACHABLE
        + """
@e.elastic.run
def train(state):
    print("ROUND", e.world().round, "RANK", e.rank(), "OF", e.size())
    if e.world().round == 1 and e.rank() == 1:
        # Rank 0 does not connect to it, but newcomers do.
        unreachable()
    while e.world().round == 1:
        e.barrier()
        state.step += 1
        print("STEP", state.step)
        state.commit()

train(state)
""",
    )
    job.until("STEP 5")
    change("localhost:1\n127.0.0.1:1\n127.0.0.2:1\n")
    text = job.succeed()
    later = [line.split()[-3:] for line in text.splitlines() if ":ROUND" in line and ":ROUND 1 " not in line]
    assert sorted(later) == [["0", "OF", "2"], ["1", "OF", "2"]], text
