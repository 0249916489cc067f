"""Callbacks for ``model.fit``. Subclasses add the base class of their Keras version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elasticrun import collectives, lifecycle
from elasticrun.tensorflow.broadcast import broadcast_variables

from . import epochs, keras_versions
from .metric_average import MetricAverage

__all__ = [
    "BroadcastGlobalVariables",
    "LearningRateSchedule",
    "LearningRateWarmup",
    "MetricAverage",
]


class BroadcastGlobalVariables:
    """Copies the variables of one rank's model and optimizer to all ranks when training begins.

    It does so at the start of training if all ranks have created all variables, otherwise after the first batch, which
    creates them. It repeats once in each round, for new workers. Elastic states do the same, so with them this callback
    changes nothing.

    Args:
        root_rank: rank of the variables to copy.
        device: accepted for Horovod compatibility, without effect.
        local_variables: variables that are not copied.
    """

    model: Any

    def __init__(self, root_rank: int, device: str = "", local_variables: Sequence[Any] | Any | None = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        #: The round of the last broadcast.
        self._round: int | None = None
        local = [] if local_variables is None else local_variables
        self._local = {id(variable) for variable in (local if isinstance(local, (list, tuple, set)) else [local])}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # New workers of this round were not part of an earlier round's broadcast.
        self.broadcast_done = self.broadcast_done and self._round == lifecycle.world().round
        if not self.broadcast_done and all(collectives.allgather_object(self._ready())):
            self._broadcast()

    def on_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _ready(self) -> bool:
        if not getattr(self.model, "built", True):
            return False
        keras_versions.build(self.model.optimizer, self.model.trainable_variables)
        return True

    def _broadcast(self) -> None:
        variables = [*self.model.variables, *keras_versions.variables(self.model.optimizer)]
        broadcast_variables([variable for variable in variables if id(variable) not in self._local], self.root_rank)
        self.broadcast_done = True
        self._round = lifecycle.world().round


class LearningRateSchedule:
    """Sets the learning rate to ``initial_lr * multiplier(epoch)`` from ``start_epoch`` until ``end_epoch``.

    Args:
        initial_lr: the learning rate to multiply.
        multiplier: a function of the epoch, or a number whose powers multiply from ``start_epoch`` on.
        start_epoch: the first epoch, as ``fit`` counts them.
        end_epoch: the epoch after the last one; None for no end.
        staircase: whether the rate changes once per epoch. Otherwise it changes before each batch, with
            ``epoch + batch / steps_per_epoch``. If a change of hosts splits an epoch, ``UpdateBatchStateCallback`` provides
            the batch at which the epoch continues.
        momentum_correction: whether momenta of SGD and RMSprop, which contain earlier learning rates, are rescaled as well
            (Goyal et al., "Accurate, Large Minibatch SGD", 2017, 2.1).
        steps_per_epoch: batches per epoch, if ``fit`` does not know the number.

    Raises:
        ValueError: ``initial_lr`` is missing, or the learning rate follows a Keras schedule.
    """

    model: Any
    params: dict[str, Any]

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed: the learning rate that is multiplied")
        self.initial_lr = initial_lr
        self.multiplier = _function(multiplier, start_epoch)
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = start_epoch

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = self.params.get("steps")
        if not self.steps_per_epoch:
            raise ValueError(
                f"{type(self).__name__}: fit does not know how many batches an epoch has: pass steps_per_epoch"
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._covers(self.current_epoch):
            return
        if not self.staircase:
            self._adjust(self._fractional_epoch(epochs.batches_before(self.model) + batch))
        elif batch == 0:
            self._adjust(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self.staircase and self._covers(epoch):
            # The rate of the epoch's last batch, however many batches of the epoch this round had.
            assert self.steps_per_epoch, "found when training began"
            self._adjust(self._fractional_epoch(self.steps_per_epoch - 1))
        if logs is not None:
            logs["lr"] = keras_versions.learning_rate(self.model.optimizer)

    def _covers(self, epoch: int) -> bool:
        return self.start_epoch <= epoch and (self.end_epoch is None or epoch < self.end_epoch)

    def _fractional_epoch(self, batch: int) -> float:
        assert self.steps_per_epoch, "found when training began"
        return self.current_epoch + batch / self.steps_per_epoch

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        rate = self.initial_lr * self.multiplier(epoch)
        before = keras_versions.learning_rate(optimizer)
        keras_versions.set_learning_rate(optimizer, rate)
        if self.momentum_correction and before and rate != before:
            # Equivalent to a momentum coefficient of m * rate / before in this one step.
            for momentum in _momenta(optimizer, self.model.trainable_variables):
                momentum.assign(momentum * (rate / before))


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate from ``initial_lr / size()`` to ``initial_lr``, gradually with each batch.

    Goyal et al., "Accurate, Large Minibatch SGD", 2017, 2.2.

    Args:
        initial_lr: the learning rate after the warm-up.
        warmup_epochs: number of epochs of the warm-up.
        momentum_correction: see :class:`LearningRateScheduleCallback`.
        steps_per_epoch: batches per epoch, if ``fit`` does not know the number.
        verbose: whether rank 0 prints a line at the end of the warm-up.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(initial_lr, self._share, 0, warmup_epochs, False, momentum_correction, steps_per_epoch)
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.warmup_epochs - 1 and self.verbose > 0 and lifecycle.rank() == 0:
            rate = keras_versions.learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: the learning rate is warmed up to {rate:g}.")

    def _share(self, epoch: float) -> float:
        # The rate at the end of this batch, so that the last batch of the warm-up has the full rate.
        assert self.steps_per_epoch, "found when training began"
        done = (epoch + 1.0 / self.steps_per_epoch) / self.warmup_epochs
        size = lifecycle.size()
        return (done * (size - 1) + 1) / size


def _function(multiplier: float | Callable[[float], float], start: int) -> Callable[[float], float]:
    if callable(multiplier):
        return multiplier
    base = float(multiplier)
    return lambda epoch: base ** (epoch - start)


def _momenta(optimizer: Any, trainable: Sequence[Any]) -> list[Any]:
    """Variables of SGD and RMSprop that sum up gradients multiplied by learning rates."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(optimizer, "momentum", None):
        return []
    if keras_versions.is_legacy(optimizer):
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [optimizer.get_slot(variable, "momentum") for variable in trainable]
    found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None)
    return [momentum for momentum in found or [] if momentum is not None]
