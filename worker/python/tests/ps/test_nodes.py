"""The parameter server in Python: real processes, two servers and two workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.nodes import LIMIT, Nodes

WORKERS = Path(__file__).parent / "workers"


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_pushes_and_pulls_of_ps_lite(kind: str) -> None:
    with Nodes(WORKERS / "kv.py", arguments=[kind]) as nodes:
        assert nodes.succeed().count("error 0.0") == 2


def test_they_survive_lost_messages() -> None:
    variables = {"PS_RESEND": "1", "PS_RESEND_TIMEOUT": "100", "PS_DROP_MSG": "10"}
    with Nodes(WORKERS / "kv.py", arguments=["numpy"], variables=variables) as nodes:
        assert nodes.succeed().count("error 0.0") == 2


def test_all_types_shapes_and_lens() -> None:
    with Nodes(WORKERS / "value_types.py", workers=1) as nodes:
        assert "all types" in nodes.succeed()


def test_each_mistake_has_an_error() -> None:
    variables = {"ELASTICRUN_PS_HANDLER_TIMEOUT": "1"}
    with Nodes(WORKERS / "mistakes.py", servers=1, workers=1, variables=variables) as nodes:
        assert "all mistakes" in nodes.succeed()


def test_handlers_and_simple_requests() -> None:
    with Nodes(WORKERS / "handlers.py") as nodes:
        assert nodes.succeed().count("handled") == 2


@pytest.mark.parametrize("kind", ["answer", "barrier", "space"])
def test_ctrl_c_ends_a_wait(kind: str) -> None:
    variables = {"ELASTICRUN_PS_SEND_BUFFER": "1000000", "ELASTICRUN_PS_REQUEST_TIMEOUT": "1000"}
    with Nodes(WORKERS / "waits.py", servers=1, workers=1, arguments=[kind], variables=variables) as nodes:
        code, output = nodes.interrupt("worker")
        assert code == 0 and "interrupted" in output, output


def test_ctrl_c_ends_the_start() -> None:
    with Nodes(WORKERS / "start.py", servers=1, workers=1) as nodes:
        code, output = nodes.interrupt("worker")
        assert code == 0 and "interrupted" in output, output


def test_a_job_may_take_longer_than_an_answer() -> None:
    variables = {"ELASTICRUN_PS_REQUEST_TIMEOUT": "1"}
    with Nodes(WORKERS / "long_job.py", servers=1, workers=1, variables=variables) as nodes:
        assert "late" in nodes.succeed()


def test_a_failed_worker_ends_the_job() -> None:
    with Nodes(WORKERS / "failing.py", servers=1, workers=1) as nodes:
        for role, text in (
            ("worker", "LookupError: nothing to learn"),
            ("server", "PsNodeLost"),
            ("scheduler", "PsNodeLost"),
        ):
            process = nodes.process(role)
            output, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 1 and text in output, output


def test_a_killed_server_is_named() -> None:
    with Nodes(WORKERS / "lost.py", servers=1, workers=1) as nodes:
        worker = nodes.process("worker")
        assert worker.stdout is not None
        worker.stdout.readline()
        nodes.process("server").kill()
        output, _ = worker.communicate(timeout=LIMIT)
        assert "PsNodeLost: lost server 0: it closed the connection" in output, output


def test_the_next_job_begins_with_saved_values(tmp_path: Path) -> None:
    variables = {"PS_ELASTIC": "1", "ELASTICRUN_PS_SNAPSHOTS": str(tmp_path)}
    for count in (1, 2):
        with Nodes(WORKERS / "saved.py", workers=1, variables=variables) as nodes:
            output = nodes.succeed()
            assert f"sums [{1.5 * count}, {2.5 * count}]" in output and "\nsnapshot" in "\n" + output, output
    with Nodes(WORKERS / "saved.py", workers=1, variables={"PS_ELASTIC": "1"}) as nodes:
        assert "no snapshot: snapshots: this job takes none: set ELASTICRUN_PS_SNAPSHOTS" in nodes.succeed()
