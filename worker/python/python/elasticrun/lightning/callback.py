"""The callback that makes a Trainer of Lightning elastic."""

from __future__ import annotations

import functools
import os
from typing import Any

from elasticrun._loops import seeds
from elasticrun._loops.extras import require_methods
from elasticrun._loops.intervals import Intervals
from elasticrun._loops.job import in_job

from . import packages
from .fitting import Fitting

_Trainer: Any = packages.module("trainer").Trainer
_Callback: Any = packages.module("callbacks").Callback


class ElasticCallback(_Callback):
    """Continues ``Trainer.fit()`` through changes of the workers, in the same call, from the last optimizer step.

    ::

        trainer = Trainer(strategy="ddp", max_epochs=3, callbacks=[ElasticCallback()])

    Optimizer steps are committed to memory of the host, after their validation: all that Lightning saves in a checkpoint,
    the metrics of the epoch, and the position in the data. When a worker fails, all workers set up their training again,
    and continue behind the newest commit. The samples that remain of the epoch are divided among the current workers.
    Outside of a job of elasticrun the callback has no effect.

    A process calls ``fit()`` once.

    Args:
        steps_per_commit: optimizer steps between two commits. A failure repeats the steps since the last commit.
    """

    def __init__(self, steps_per_commit: int = 1) -> None:
        self._intervals = Intervals(steps_per_commit)
        self._fitting: Fitting | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores the metrics of the epoch, or commits the initial state."""
        if self._fitting is not None:
            self._fitting.begin()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Seeds the random generators by step and rank."""
        if self._fitting is not None:
            seed = os.environ.get("PL_GLOBAL_SEED", "0")
            seeds.plant(seed, "step", trainer.fit_loop.total_batch_idx, trainer.global_rank)


def install() -> None:
    """Has trainers with an :class:`ElasticCallback` train elastically. Further calls do nothing."""
    require_methods("lightning", _Trainer, "_run", "_run_stage")
    original = _Trainer._run
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def run(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        callbacks = [one for one in self.callbacks if isinstance(one, ElasticCallback)]
        if not callbacks or not in_job() or not self.training:
            return original(self, model, *args, **kwargs)
        callback = callbacks[0]
        # First, so that other callbacks see what it restores.
        self.callbacks.remove(callback)
        self.callbacks.insert(0, callback)
        callback._fitting = Fitting(self, callback._intervals)
        try:
            return callback._fitting.run(functools.partial(original, self, model, *args, **kwargs))
        finally:
            callback._fitting = None

    _Trainer._run = run
    _accept_any_world()


def _accept_any_world() -> None:
    """Has workers of a job take the number of processes from the job, and not from the arguments of the Trainer."""
    environment = packages.fabric("plugins.environments").TorchElasticEnvironment
    strategy = packages.module("strategies").DDPStrategy
    validate, sampler = environment.validate_settings, strategy.distributed_sampler_kwargs

    @functools.wraps(validate)
    def validate_settings(self: Any, num_devices: int, num_nodes: int) -> None:
        if not in_job():
            validate(self, num_devices, num_nodes)

    def distributed_sampler_kwargs(self: Any) -> Any:
        return {"num_replicas": self.world_size, "rank": self.global_rank} if in_job() else sampler.fget(self)

    environment.validate_settings = validate_settings
    strategy.distributed_sampler_kwargs = property(distributed_sampler_kwargs)


install()
