"""``elastic_launch``: starts workers from Python as PyTorch's class of this name does, on one node.

::

    from torch.distributed.launcher.api import LaunchConfig
    from elasticrun.torch.launch import elastic_launch

    config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=4, max_restarts=3)
    results = elastic_launch(config, train)(0.1)  # {0: ..., 1: ..., 2: ..., 3: ...}
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

from elasticrun import _binary
from elasticrun.errors import from_exit_code
from elasticrun.launch import finish, run

__all__ = ["elastic_launch"]


class Config(Protocol):
    """The attributes of ``torch.distributed.launcher.api.LaunchConfig`` that are read."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    run_id: str
    role: str
    max_restarts: int


class elastic_launch:
    """Runs a function or a program in the workers of one node.

    A failure restarts all workers, at most ``config.max_restarts`` times.

    Args:
        config: a ``torch.distributed.launcher.api.LaunchConfig``, of which the number of workers, the restarts, the role
            and the run's id are read. Rendezvous, logs and the start method have no effect.
        entrypoint: a function, which is pickled as by :func:`elasticrun.run`, or the path of a program.

    Raises:
        ValueError: the configuration has several nodes. ``elasticrun torchrun`` runs on several.
    """

    def __init__(self, config: Config, entrypoint: Callable[..., Any] | str | None) -> None:
        if config.max_nodes != 1:
            raise ValueError(f"max_nodes={config.max_nodes}: expected 1; elasticrun torchrun runs on several nodes")
        if entrypoint is None:
            raise TypeError("elastic_launch takes a function, or the path of a program")
        self._config = config
        self._entrypoint = entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        """Waits until the job has ended.

        Returns:
            The return values of the function by rank. Those of a program are None.

        Raises:
            JobError: the job failed. See :mod:`elasticrun.errors`.
        """
        config = self._config
        variables = {"ROLE_NAME": config.role, "TORCHELASTIC_RUN_ID": config.run_id}
        env = {**os.environ, **{name: value for name, value in variables.items() if value}}
        if callable(self._entrypoint):
            results = run(
                self._entrypoint,
                args,
                np=config.nproc_per_node,
                max_restarts=config.max_restarts,
                no_prefix=True,
                env=env,
            )
            return dict(enumerate(results))
        words = ["run", "-np", str(config.nproc_per_node), "--max-restarts", str(config.max_restarts), "--no-prefix"]
        words += [word for name in variables if env.get(name) for word in ("--env", name)]
        program = [self._entrypoint, *map(str, args)]
        job = subprocess.Popen([os.fspath(_binary.find()), *words, "--", *program], env=env, stderr=subprocess.PIPE)
        tail = finish(job)
        if job.returncode != 0:
            raise from_exit_code(job.returncode, tail)
        return dict.fromkeys(range(config.nproc_per_node))
