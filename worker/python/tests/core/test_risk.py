"""A host that may go away: all workers learn of it at the same step."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

SCRIPT = """
import time
import elasticrun as e

e.init()
state = e.ObjectState(step=0)

@e.elastic.run
def train(state):
    while not e.notifications.at_risk():
        time.sleep(0.01)
        state.step += 1
        if state.step == 5:
            print("SAFE", flush=True)
    state.commit()
    return state.step

print("AT RISK AT", train(state), flush=True)
"""


class Metadata(BaseHTTPRequestHandler):
    """EC2's metadata service, version 2, as far as agents ask it."""

    recommends = False

    def do_PUT(self) -> None:
        self._answer(200, b"token")

    def do_GET(self) -> None:
        rebalance = self.path.endswith("/events/recommendations/rebalance")
        if rebalance and type(self).recommends:
            self._answer(200, b'{"noticeTime": "2026-01-05T08:22:00Z"}')
        else:
            self._answer(404, b"")

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def metadata() -> Iterator[tuple[str, type[Metadata]]]:
    class Own(Metadata):
        pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Own
    server.shutdown()
    thread.join()
    server.server_close()


def test_all_workers_hear_of_a_risk_at_the_same_step(start, metadata):
    url, service = metadata
    job = start.job("-np 2 --min-np 1", SCRIPT, AWS_EC2_METADATA_SERVICE_ENDPOINT=url)
    job.until("SAFE")
    service.recommends = True
    text = job.succeed()
    steps = [line.split("AT RISK AT ")[1] for line in text.splitlines() if "AT RISK AT" in line]
    assert len(steps) == 2 and len(set(steps)) == 1
