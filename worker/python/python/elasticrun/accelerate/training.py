"""The decorator of a training function, which runs once in each round."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

import torch
from accelerate import Accelerator
from accelerate.utils import extract_model_from_parallel
from torch.utils.data import DataLoader

import elasticrun.torch as hvd
from elasticrun._loops import loaders, rows, seeds
from elasticrun._loops.batches import ElasticBatches
from elasticrun._loops.intervals import Intervals
from elasticrun._loops.job import in_job
from elasticrun._loops.rows import RowBatches
from elasticrun.errors import ElasticrunError
from elasticrun.torch import elastic, optimizer_state

from . import process_state
from .loader import ElasticLoader, ElasticRowLoader, Hooks
from .progress import Progress

P = ParamSpec("P")
R = TypeVar("R")

#: The training under way, if any.
_running: Training | None = None


@overload
def run(function: Callable[Concatenate[Progress, P], R], /) -> Callable[P, R]: ...
@overload
def run(
    *, steps_per_commit: int = 1, **values: object
) -> Callable[[Callable[Concatenate[Progress, P], R]], Callable[P, R]]: ...
def run(function: Callable[..., R] | None = None, /, *, steps_per_commit: int = 1, **values: object) -> Any:
    """Decorates a training function, so that it continues through changes of the workers.

    ::

        @elasticrun.accelerate.run              # or run(steps=0), with values of the script
        def train(progress):
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for epoch in progress.epochs(3):
                for batch in loader:
                    ...
                    progress.steps += 1

    The function gets the :class:`Progress` as its first argument. It is called once in each round, and prepares its objects
    anew by ``Accelerator.prepare()``, which restores the newest commit: models, optimizers, schedulers, the scaler, objects
    of ``register_for_checkpointing()``, and the position of the first DataLoader that is prepared, the training data. A
    loop over that loader visits the samples that remain of the epoch, and commits optimizer steps when it takes the next
    batch.

    Objects that are made outside of the function are not made again in a later round.

    Outside of a job of elasticrun the function is called once, and nothing else is changed.

    Args:
        steps_per_commit: optimizer steps between two commits. A failure repeats the steps since the last commit.
        values: initial values of the progress, which can be pickled.

    Raises:
        ElasticrunError: Accelerate does not train replicas with torch.distributed; the training data cannot be divided
            anew; training is done in this process already.
    """

    def decorate(function: Callable[Concatenate[Progress, P], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def train(*args: P.args, **kwargs: P.kwargs) -> R:
            global _running
            if not in_job():
                return function(Progress(**values), *args, **kwargs)
            hvd.init()
            _running = training = Training(values, steps_per_commit)
            try:
                return training.run(lambda: function(training.progress, *args, **kwargs))
            finally:
                _running = None

        return train

    return decorate if function is None else decorate(function)


class _CommittedProgress(Progress):
    """A progress that a training commits."""

    def __init__(self, training: Training, values: dict[str, object]) -> None:
        super().__init__(**values)
        self._training = training

    def values(self) -> dict[str, object]:
        """What is committed."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def _epoch_done(self) -> None:
        self._training.epoch_done()


class Training:
    """What the training function has prepared in the current round."""

    def __init__(self, values: dict[str, object], steps_per_commit: int) -> None:
        self.progress = _CommittedProgress(self, values)
        self._intervals = Intervals(steps_per_commit)
        self._accelerator: Accelerator | None = None
        self._batches: ElasticBatches | RowBatches | None = None
        self._has_entered = False
        self._resumes = False
        #: Objects that were registered for checkpoints in this round.
        self._registered: list[Any] = []
        self._state = elastic.TorchState(objects=None, progress=self.progress.values(), seed=torch.initial_seed())

    def run(self, function: Callable[[], R]) -> R:
        """Calls ``function`` until it returns."""

        @elastic.run
        def train(state: Any) -> R:
            self._release()
            self._resumes = state.objects is not None
            vars(self.progress).update(state.progress)
            self._intervals.begin()
            if process_state.is_formed():
                process_state.enter_round()
            return function()

        return train(self._state)

    def prepare(self, accelerator: Accelerator, prepare: Callable[..., Any], *objects: Any, **kwargs: Any) -> Any:
        """Prepares objects, and restores them from the newest commit."""
        process_state.require_supported(accelerator)
        process_state.enter_round()
        if self._accelerator not in (None, accelerator):
            raise ElasticrunError("elastic training supports one Accelerator in the training function, not several")
        self._accelerator = accelerator
        counts = self._counts()
        objects = tuple(self._row_loader(one) if isinstance(one, DataLoader) else one for one in objects)
        prepared = prepare(*objects, **kwargs)
        several = prepared if isinstance(prepared, tuple) else (prepared,)
        results = tuple(
            self._training_loader(raw, one) if isinstance(raw, DataLoader) and self._batches is None else one
            for raw, one in zip(objects, several, strict=True)
        )
        if self._resumes:
            self._restore(counts)
        if self._batches is not None and not self._has_entered:
            self._batches.enter()
            self._has_entered = True
        return results if isinstance(prepared, tuple) else results[0]

    def registered(self, accelerator: Accelerator, *objects: Any) -> None:
        """Restores objects that were registered for checkpoints."""
        self._registered += objects
        if self._resumes:
            first = len(accelerator._custom_objects) - len(objects)
            self._load(objects, self._state.objects["custom"][first:])

    def _row_loader(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        """The same, or an elastic loader if it is one of the training data by ``elasticrun.data``."""
        data = rows.data_of(loader)
        if data is None or self._batches is not None:
            return loader
        self._batches = batches = RowBatches(data)
        return ElasticRowLoader(loader, batches, *self._placement(), self._hooks())

    def _placement(self) -> tuple[Any, bool]:
        """The device of batches, and whether copies to it wait."""
        accelerator = self._accelerator
        assert accelerator is not None
        return accelerator.device if accelerator.device_placement else None, accelerator.non_blocking

    def _hooks(self) -> Hooks:
        return Hooks(self._before_epoch, self._before_step, self._after_step)

    def _training_loader(self, loader: DataLoader[Any], prepared: Any) -> ElasticLoader:
        """An elastic loader in place of the one that Accelerate has divided among the processes."""
        accelerator = self._accelerator
        assert accelerator is not None
        order = loaders.order_of(loader)
        self._batches = batches = order.batches(order.sampler(self._state.seed))
        elastic_loader = ElasticLoader(loader, batches, *self._placement(), self._hooks())
        accelerator._dataloaders[accelerator._dataloaders.index(prepared)] = elastic_loader
        elastic_loader._is_accelerate_prepared = True
        return elastic_loader

    def epoch_done(self) -> None:
        """Commits between two epochs, so that the end of the last one is not repeated."""
        self._commit()

    def _before_epoch(self) -> None:
        if self._state.objects is None:
            # A failure in the first step returns to this one.
            self._commit()

    def _before_step(self) -> None:
        assert self._batches is not None
        seeds.plant(self._state.seed, "step", self._batches.epoch, self._batches.done, hvd.rank())

    def _after_step(self) -> None:
        assert self._accelerator is not None and self._batches is not None
        self._batches.advance()
        if self._accelerator.sync_gradients and self._intervals.due(last=self._batches.remaining == 0):
            self._commit()

    def _counts(self) -> dict[str, int]:
        """Objects of each kind that are prepared."""
        accelerator = self._accelerator
        assert accelerator is not None
        kinds = {
            "models": accelerator._models,
            "optimizers": accelerator._optimizers,
            "schedulers": accelerator._schedulers,
        }
        return {kind: len(objects) for kind, objects in kinds.items()}

    def _commit(self) -> None:
        accelerator, state, batches = self._accelerator, self._state, self._batches
        if accelerator is None or batches is None:
            raise ElasticrunError(
                "elastic training needs the DataLoader of the training data: pass it to Accelerator.prepare() in the"
                " training function"
            )
        if batches.epoch != self.progress.epoch:
            batches.go_to(self.progress.epoch)
        batches.agree()
        models = [extract_model_from_parallel(model) for model in accelerator._models]
        state.objects = {
            "models": [model.state_dict() for model in models],
            "optimizers": [optimizer.state_dict() for optimizer in accelerator._optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in accelerator._schedulers],
            "custom": [one.state_dict() for one in accelerator._custom_objects],
            "scaler": None if accelerator.scaler is None else accelerator.scaler.state_dict(),
            "position": batches.state_dict(),
        }
        state.progress = self.progress.values()
        state.commit()
        batches.committed()

    def _restore(self, counts: dict[str, int]) -> None:
        """Restores what was prepared since there were ``counts`` objects."""
        accelerator, objects = self._accelerator, self._state.objects
        assert accelerator is not None

        def pairs(kind: str, live: list[Any]) -> Any:
            return zip(live[counts[kind] :], objects[kind][counts[kind] :], strict=False)

        for model, stored in pairs("models", accelerator._models):
            extract_model_from_parallel(model).load_state_dict(stored)
        for optimizer, stored in pairs("optimizers", accelerator._optimizers):
            optimizer_state.load(optimizer.optimizer, stored)
            optimizer_state.forget_gradients(optimizer.optimizer)
        for scheduler, stored in pairs("schedulers", accelerator._schedulers):
            scheduler.load_state_dict(stored)
        # Those of this round were restored when they were registered.
        earlier = [one for one in accelerator._custom_objects if not any(one is other for other in self._registered)]
        self._load(earlier, objects["custom"])
        if objects["scaler"] is not None and accelerator.scaler is not None:
            accelerator.scaler.load_state_dict(objects["scaler"])
        if self._batches is not None:
            self._batches.load_state_dict(objects["position"])

    def _release(self) -> None:
        """Undoes what was prepared in an earlier round, and drops what was bound to its group."""
        accelerator, self._accelerator, self._batches = self._accelerator, None, None
        self._has_entered = False
        if accelerator is not None:
            for model in accelerator._models:
                extract_model_from_parallel(model, keep_fp32_wrapper=False)
            kept = [one for one in accelerator._custom_objects if not any(one is other for other in self._registered)]
            accelerator._custom_objects[:] = kept
            accelerator.free_memory()
        self._registered.clear()

    @staticmethod
    def _load(objects: Iterable[Any], stored: Iterable[Any]) -> None:
        for one, state_dict in zip(objects, stored, strict=False):
            one.load_state_dict(state_dict)


def install() -> None:
    """Has methods of ``Accelerator`` restore commits in a training function. Further calls do nothing."""
    process_state.install()
    original, register = Accelerator.prepare, Accelerator.register_for_checkpointing
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def prepare(self: Accelerator, *args: Any, **kwargs: Any) -> Any:
        if _running is None:
            return original(self, *args, **kwargs)
        return _running.prepare(self, functools.partial(original, self), *args, **kwargs)

    @functools.wraps(register)
    def register_for_checkpointing(self: Accelerator, *objects: Any) -> None:
        register(self, *objects)
        if _running is not None:
            _running.registered(self, *objects)

    Accelerator.prepare = prepare
    Accelerator.register_for_checkpointing = register_for_checkpointing


install()
