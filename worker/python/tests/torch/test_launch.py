"""elastic_launch: PyTorch's launcher for functions, with PyTorch's own configuration."""

from __future__ import annotations

import pytest
from support.jobs import Starter

WORK = """
    import os
    import torch
    import torch.distributed as dist

    def work(add):
        dist.init_process_group("gloo")
        total = torch.tensor([dist.get_rank() + add])
        dist.all_reduce(total)
        dist.destroy_process_group()
        return os.environ["ROLE_NAME"], os.environ["TORCHELASTIC_RUN_ID"], total.item()

    def fails_once(path):
        if os.environ["RANK"] == "1" and not os.path.exists(path):
            open(path, "w").close()
            os._exit(3)
        return os.environ["TORCHELASTIC_RESTART_COUNT"]

    def fails():
        raise ValueError("for a reason")
"""

CONFIG = """
    from torch.distributed.launcher.api import LaunchConfig
    from elasticrun.torch.launch import elastic_launch
    import elasticrun, work

    def config(**options):
        return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, **options)
"""


def alone(start: Starter, text: str) -> str:
    start.script(WORK, "work.py")
    return start.alone(CONFIG + text)


def test_a_function_returns_a_value_for_each_rank(start: Starter) -> None:
    text = alone(
        start,
        """
    print("RESULTS", elastic_launch(config(run_id="7", role="trainer"), work.work)(10))
""",
    )
    assert "RESULTS {0: ('trainer', '7', 21), 1: ('trainer', '7', 21)}" in text


def test_a_failure_restarts_all_workers(start: Starter, tmp_path: object) -> None:
    text = alone(
        start,
        f"""
    print("RESULTS", elastic_launch(config(max_restarts=1), work.fails_once)({str(tmp_path)!r} + "/once"))
""",
    )
    assert "RESULTS {0: '1', 1: '1'}" in text


def test_a_function_that_fails_raises_its_error(start: Starter) -> None:
    text = alone(
        start,
        """
    try:
        elastic_launch(config(max_restarts=0), work.fails)()
    except elasticrun.errors.JobError as error:
        print("CAUSE", repr(error.__cause__))
""",
    )
    assert "CAUSE ValueError('for a reason')" in text


def test_a_program_returns_nothing(start: Starter) -> None:
    text = alone(
        start,
        """
    print("RESULTS", elastic_launch(config(max_restarts=0), "echo")("ran", 1))
""",
    )
    assert text.count("ran 1") == 2
    assert "RESULTS {0: None, 1: None}" in text


@pytest.mark.parametrize("nodes", [2])
def test_several_nodes_are_refused(start: Starter, nodes: int) -> None:
    text = alone(
        start,
        f"""
    try:
        elastic_launch(LaunchConfig(min_nodes=1, max_nodes={nodes}, nproc_per_node=1), work.work)
    except ValueError as error:
        print("REFUSED", error)
""",
    )
    assert "REFUSED max_nodes=2: expected 1" in text
