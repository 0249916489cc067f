"""Jobs of a parameter server: a process for each node, all on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from .ports import free_port

#: How long a test waits for a job. Far longer than all timeouts of the nodes.
LIMIT = 100


@dataclass
class Nodes:
    """The processes of a job, which runs one script with ``DMLC_ROLE`` for each node. They are ended with the block."""

    script: Path
    servers: int = 2
    workers: int = 2
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> Nodes:
        port = free_port()
        common = os.environ | {
            "DMLC_NUM_SERVER": str(self.servers),
            "DMLC_NUM_WORKER": str(self.workers),
            "DMLC_PS_ROOT_URI": "127.0.0.1",
            "DMLC_PS_ROOT_PORT": str(port),
            "PYTHONUNBUFFERED": "1",
            **self.variables,
        }
        roles = ["scheduler"] + ["server"] * self.servers + ["worker"] * self.workers
        self.processes = [
            (role, subprocess.Popen(
                [sys.executable, str(self.script), *self.arguments],
                env=common | {"DMLC_ROLE": role}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            ))
            for role in roles
        ]  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for _, process in self.processes:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def process(self, role: str) -> subprocess.Popen[str]:
        """The first process with this role."""
        return next(process for found, process in self.processes if found == role)

    def succeed(self) -> str:
        """Waits until all have ended well, and returns what the workers have printed."""
        outputs = [
            (role, process.communicate(timeout=LIMIT)[0], process.returncode) for role, process in self.processes
        ]
        text = "\n".join(f"--- {role}: {code}\n{output}" for role, output, code in outputs)
        assert all(code == 0 for _, _, code in outputs), text
        return "".join(output for role, output, _ in outputs if role == "worker")

    def interrupt(self, role: str) -> tuple[int, str]:
        """Ctrl-C to the first process with this role, once it has printed a line. Returns its exit code and further output."""
        process = self.process(role)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LIMIT)
        return process.returncode, output
