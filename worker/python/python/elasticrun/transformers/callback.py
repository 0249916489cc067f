"""The callback that makes a Trainer elastic."""

from __future__ import annotations

import functools
from typing import Any

from transformers import Trainer, TrainerCallback

from elasticrun._loops import seeds
from elasticrun._loops.extras import require_methods
from elasticrun._loops.intervals import Intervals
from elasticrun._loops.job import in_job
from elasticrun.accelerate import process_state

from .training import REPLACED, Training


class ElasticCallback(TrainerCallback):
    """Continues ``Trainer.train()`` through changes of the workers, in the same call, from the last optimizer step.

    ::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[ElasticCallback()])

    Optimizer steps are committed to memory of the host, after they were logged, evaluated and saved. When a worker fails,
    the others and its replacement continue behind the newest commit: with its model, optimizer, scheduler, scaler,
    ``global_step``, log history, control flags and callbacks that have a ``state()``. The samples that remain of the epoch
    are divided among the current workers. Outside of a job of elasticrun the callback has no effect.

    A process calls ``train()`` once.

    Args:
        steps_per_commit: optimizer steps between two commits. A failure repeats the steps since the last commit.
    """

    def __init__(self, steps_per_commit: int = 1) -> None:
        self._intervals = Intervals(steps_per_commit)
        self._training: Training | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restores what the Trainer initialises at the beginning of its loop."""
        if self._training is not None:
            self._training.begin(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seeds the random generators by step and rank."""
        if self._training is not None:
            seeds.plant(args.seed, "step", state.global_step, args.process_index)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves the position in the data, and sets the epoch by it."""
        if self._training is not None:
            self._training.step_done(state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves to the next epoch."""
        if self._training is not None:
            self._training.epoch_done()


def install() -> None:
    """Has trainers with an :class:`ElasticCallback` train elastically. Further calls do nothing."""
    require_methods("transformers", Trainer, *REPLACED, "_inner_training_loop")
    process_state.install()
    original = Trainer._inner_training_loop
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def loop(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        callbacks = [one for one in self.callback_handler.callbacks if isinstance(one, ElasticCallback)]
        if not callbacks or not in_job():
            return original(self, *args, **kwargs)
        callback = callbacks[0]
        callback._training = Training(self, callback, callback._intervals)
        try:
            return callback._training.run(functools.partial(original, self, *args, **kwargs))
        finally:
            callback._training = None

    Trainer._inner_training_loop = loop


install()
