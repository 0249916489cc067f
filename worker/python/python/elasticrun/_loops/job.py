"""Whether this process is a worker of a job."""

from __future__ import annotations

import os


def in_job() -> bool:
    """Whether an agent of elasticrun has started this process. Otherwise the callbacks have no effect."""
    return "ELASTICRUN_AGENT_SOCKET" in os.environ
