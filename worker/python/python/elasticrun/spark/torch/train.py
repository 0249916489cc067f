"""The training function of an estimator's workers. Each trains on its share of the rows, and rank 0 returns the results."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .checkpoint import EpochSender, restore, saved
from .objective import Measured, Objective
from .partial_batches import Rows, batch_norm_of, is_synchronised, parts

__all__ = ["TrainSpec", "Trained", "train"]


@dataclass(frozen=True)
class TrainSpec:
    """The training specification, which is sent to the workers.

    Attributes:
        pickled: model, optimizer, objective and compression, pickled by cloudpickle together with the program's classes.
        checkpoint: initial weights and optimizer state, if any.
        train: path of the training rows.
        validation: path of the validation rows, if any.
        batch_size: rows per worker and backward pass.
        drop_last: whether a backward pass with fewer rows is left out.
        validation_batch_size: rows per worker and validation step.
        epochs: number of epochs.
        passes: backward passes per step.
        steps: maximum number of steps per epoch, if any.
        validation_steps: maximum number of steps per validation, if any.
        steps_per_commit: number of steps between commits.
        checkpoint_every: number of epochs between checkpoints.
        scale_rate: whether the learning rate of the optimizer is multiplied by the number of workers.
        data: further arguments of the data sets.
        seed: seed of torch, if any.
        use_gpu: whether to use GPUs if there are any.
        verbose: whether rank 0 prints the results of each epoch.
    """

    pickled: bytes
    checkpoint: bytes | None
    train: str
    validation: str | None
    batch_size: int
    drop_last: bool
    validation_batch_size: int
    epochs: int
    passes: int
    steps: int | None
    validation_steps: int | None
    steps_per_commit: int
    checkpoint_every: int
    scale_rate: bool
    data: dict[str, Any]
    seed: int | None
    use_gpu: bool
    verbose: bool


@dataclass(frozen=True)
class Trained:
    """The results of training, from rank 0.

    Attributes:
        history: an entry for each epoch.
        checkpoint: weights and optimizer state, in the format of :func:`torch.save`.
        widths: number of values in a row of each output; None for single values.
    """

    history: list[dict[str, Any]]
    checkpoint: bytes
    widths: list[int | None]


def train(spec: TrainSpec) -> Trained | None:
    """Trains to the last epoch, over any number of rounds."""
    import elasticrun.torch as hvd
    from elasticrun.data import ParquetDataset

    hvd.init()
    if spec.seed is not None:
        torch.manual_seed(spec.seed)
    model, optimizer, objective, compression = pickle.loads(spec.pickled)
    device = _device(spec.use_gpu)
    model.to(device)
    if spec.checkpoint is not None:
        restore(model, optimizer, spec.checkpoint)
    # Moves the optimizer's state to the device of the parameters.
    optimizer.load_state_dict(optimizer.state_dict())
    rates = [group["lr"] for group in optimizer.param_groups]
    distributed = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression or hvd.Compression.none,
        backward_passes_per_step=spec.passes,
    )

    def opened(path: str, rows: int) -> ParquetDataset:
        return ParquetDataset(path, batch_size=rows, columns=objective.columns, **spec.data)

    datasets = {"data": opened(spec.train, spec.batch_size * spec.passes)}
    if spec.validation is not None:
        datasets["validation"] = opened(spec.validation, spec.validation_batch_size)
    state = hvd.elastic.TorchState(
        model,
        distributed,
        **datasets,
        epoch=0,
        trained=None,
        steps=0,
        sums=[0.0] * objective.counts,
        history=[],
        widths=None,
    )

    checkpoints = EpochSender(spec.checkpoint_every, rates)

    @hvd.elastic.run
    def loop(state: Any) -> None:
        scale = hvd.size() if spec.scale_rate else 1
        for group, rate in zip(distributed.param_groups, rates, strict=True):
            group["lr"] = rate * scale
        epochs = _Epochs(spec, objective, state, device)
        while state.epoch < spec.epochs:
            checkpoints.send(state)
            epochs.finish_one()

    loop(state)
    if hvd.rank() != 0:
        return None
    return Trained(state.history, saved(model, distributed, rates), state.widths)


class _Epochs:
    """The epochs of one round, which start at the position of the state."""

    def __init__(self, spec: TrainSpec, objective: Objective, state: Any, device: torch.device) -> None:
        self._spec = spec
        self._objective = objective
        self._state = state
        self._device = device
        self._is_synchronised = is_synchronised(state.model)
        #: Sums of this worker since the last commit.
        self._sums = torch.zeros(objective.counts, dtype=torch.float64, device=device)

    def finish_one(self) -> None:
        """Trains the rest of an epoch, validates, and records the results."""
        state, spec = self._state, self._spec
        if state.trained is None:
            state.model.train()
            self._go_through(state.data, spec.steps, self._train)
            state.trained = self._objective.entry(state.sums)
            self._next(state.data)
        entry = {"epoch": state.epoch, "train": state.trained}
        if spec.validation is not None:
            state.model.eval()
            self._go_through(state.validation, spec.validation_steps, self._validate)
            entry["validation"] = self._objective.entry(state.sums)
        self._report(entry)
        state.history = [*state.history, entry]
        state.epoch += 1
        state.trained = None
        self._next(state.validation if spec.validation is not None else None)

    def _go_through(self, data: Any, limit: int | None, step: Any) -> None:
        state = self._state
        if limit is not None and state.steps >= limit:
            return
        for batch in data:
            step(batch)
            state.steps += 1
            if state.steps == limit:
                break
            if state.steps % self._spec.steps_per_commit == 0:
                self._gather()
                state.commit()
        self._gather()

    def _next(self, data: Any) -> None:
        """Starts the next epoch of a data set and commits, so that no worker returns to the previous epoch."""
        if data is not None:
            data.next_epoch()
        self._state.steps = 0
        self._state.sums = [0.0] * self._objective.counts
        self._state.commit()

    def _gather(self) -> None:
        """Adds the sums of all workers to the state, so that they are committed together with their rows."""
        import elasticrun.torch as hvd

        whole = hvd.allreduce(self._sums.cpu(), op=hvd.Sum, name="sums")
        self._state.sums = [one + more for one, more in zip(self._state.sums, whole.tolist(), strict=True)]
        self._sums.zero_()

    def _train(self, batch: Any) -> None:
        """Makes a step. All rows have the same weight, so a partial batch changes the weights less."""
        state, rows = self._state, self._spec.batch_size
        state.optimizer.zero_grad()
        # All workers make the same number of backward passes, even without rows.
        for part in parts(batch, rows, self._spec.passes, self._spec.drop_last):
            count = len(next(iter(part.values()))) if part else 0
            known = self._rows(count)
            if part:
                with batch_norm_of(state.model, known):
                    measured = self._objective.measure(state.model, part, self._device)
                self._record(measured)
                share: Any = measured.loss * (count / rows)
                share.backward()
            else:
                nothing: Any = sum(parameter.sum() for parameter in state.model.parameters() if parameter.requires_grad)
                (nothing * 0).backward()
        state.optimizer.step()

    def _rows(self, count: int) -> Rows:
        """The rows of a backward pass, for which this worker has ``count``."""
        import elasticrun.torch as hvd

        if not self._is_synchronised:
            return Rows(count, count, count > 0)
        total, workers = hvd.allreduce(torch.tensor([count, min(count, 1)]), op=hvd.Sum, name="rows").tolist()
        return Rows(count, total, workers == hvd.size())

    def _validate(self, batch: Any) -> None:
        if batch.rows:
            with torch.no_grad():
                measured = self._objective.measure(self._state.model, dict(batch), self._device)
            self._record(measured)

    def _record(self, measured: Measured) -> None:
        self._sums += measured.sums
        self._state.widths = measured.widths

    def _report(self, entry: Mapping[str, Any]) -> None:
        import elasticrun.torch as hvd

        if self._spec.verbose and hvd.rank() == 0:
            means = [f"{name} {entry[name]['loss']:.4f}" for name in ("train", "validation") if name in entry]
            said = f"epoch {entry['epoch'] + 1} of {self._spec.epochs}: loss {', '.join(means)}, {hvd.size()} workers"
            print(said, flush=True)


def _device(use_gpu: bool) -> torch.device:
    if not use_gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    import elasticrun.torch as hvd

    # If GPUs are Spark resources, a worker sees only that of its task.
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
