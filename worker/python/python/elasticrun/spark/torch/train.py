"""What each worker of an estimator runs: it trains on its share of the rows, and rank 0 brings back what came of it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from .objective import Measured, Objective

__all__ = ["Order", "Trained", "train"]


@dataclass(frozen=True)
class Order:
    """What workers are told. It travels to them.

    Attributes:
        pickled: model, optimizer, objective and compression, by cloudpickle: classes of the program travel along.
        checkpoint: weights and optimizer state to begin with, if any.
        train: the rows to train on.
        validation: the rows to validate with, if any.
        batch_size: rows of a worker at each backward pass.
        validation_batch_size: rows of a worker at each step of validation.
        epochs: how many.
        passes: backward passes of a step.
        steps: most steps of an epoch, if there is such a bound.
        validation_steps: most steps of a validation.
        steps_per_commit: steps from one commit to the next.
        scale_rate: whether the learning rate is that of the optimizer times the workers.
        data: more arguments of the data sets.
        seed: of torch, if one was given.
        use_gpu: whether GPUs are used if there are any.
        verbose: whether rank 0 says what an epoch came to.
    """

    pickled: bytes
    checkpoint: bytes | None
    train: str
    validation: str | None
    batch_size: int
    validation_batch_size: int
    epochs: int
    passes: int
    steps: int | None
    validation_steps: int | None
    steps_per_commit: int
    scale_rate: bool
    data: dict[str, Any]
    seed: int | None
    use_gpu: bool
    verbose: bool


@dataclass(frozen=True)
class Trained:
    """What rank 0 brings back.

    Attributes:
        history: an entry for each epoch.
        checkpoint: weights and optimizer state, of :func:`torch.save`.
        widths: values of each output in a row; None for single ones.
    """

    history: list[dict[str, Any]]
    checkpoint: bytes
    widths: list[int | None]


def train(order: Order) -> Trained | None:
    """Trains to the last epoch, in whatever rounds it takes."""
    import elasticrun.torch as hvd
    from elasticrun.data import ParquetDataset

    hvd.init()
    if order.seed is not None:
        torch.manual_seed(order.seed)
    model, optimizer, objective, compression = pickle.loads(order.pickled)
    device = _device(order.use_gpu)
    model.to(device)
    if order.checkpoint is not None:
        restore(model, optimizer, order.checkpoint)
    # Brings its own state to where the parameters are now.
    optimizer.load_state_dict(optimizer.state_dict())
    rates = [group["lr"] for group in optimizer.param_groups]
    distributed = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression or hvd.Compression.none,
        backward_passes_per_step=order.passes,
    )

    def opened(path: str, rows: int) -> ParquetDataset:
        return ParquetDataset(path, batch_size=rows, columns=objective.columns, **order.data)

    parts = {"data": opened(order.train, order.batch_size * order.passes)}
    if order.validation is not None:
        parts["validation"] = opened(order.validation, order.validation_batch_size)
    state = hvd.elastic.TorchState(
        model,
        distributed,
        **parts,
        epoch=0,
        trained=None,
        steps=0,
        sums=[0.0] * objective.counts,
        history=[],
        widths=None,
    )

    @hvd.elastic.run
    def loop(state: Any) -> None:
        scale = hvd.size() if order.scale_rate else 1
        for group, rate in zip(distributed.param_groups, rates, strict=True):
            group["lr"] = rate * scale
        epochs = _Epochs(order, objective, state, device)
        while state.epoch < order.epochs:
            epochs.finish_one()

    loop(state)
    if hvd.rank() != 0:
        return None
    for group, rate in zip(distributed.param_groups, rates, strict=True):
        group["lr"] = rate
    return Trained(state.history, kept(model, distributed), state.widths)


class _Epochs:
    """Epochs of one round, from wherever the state is."""

    def __init__(self, order: Order, objective: Objective, state: Any, device: torch.device) -> None:
        self._order = order
        self._objective = objective
        self._state = state
        self._device = device
        #: Of this worker, since the last commit.
        self._sums = torch.zeros(objective.counts, dtype=torch.float64, device=device)

    def finish_one(self) -> None:
        """Trains the rest of an epoch, validates, and notes what it came to."""
        state, order = self._state, self._order
        if state.trained is None:
            state.model.train()
            self._go_through(state.data, order.steps, self._train)
            state.trained = self._objective.entry(state.sums)
            self._next(state.data)
        entry = {"epoch": state.epoch, "train": state.trained}
        if order.validation is not None:
            state.model.eval()
            self._go_through(state.validation, order.validation_steps, self._validate)
            entry["validation"] = self._objective.entry(state.sums)
        self._report(entry)
        state.history = [*state.history, entry]
        state.epoch += 1
        state.trained = None
        self._next(state.validation if order.validation is not None else None)

    def _go_through(self, data: Any, most: int | None, step: Any) -> None:
        state = self._state
        if most is not None and state.steps >= most:
            return
        for batch in data:
            step(batch)
            state.steps += 1
            if state.steps == most:
                break
            if state.steps % self._order.steps_per_commit == 0:
                self._gather()
                state.commit()
        self._gather()

    def _next(self, data: Any) -> None:
        """To the next epoch of a data set, and a commit, so that nobody comes back to before."""
        if data is not None:
            data.next_epoch()
        self._state.steps = 0
        self._state.sums = [0.0] * self._objective.counts
        self._state.commit()

    def _gather(self) -> None:
        """Sums of all workers, which are committed together with the rows that they are of."""
        import elasticrun.torch as hvd

        whole = hvd.allreduce(self._sums.cpu(), op=hvd.Sum, name="sums")
        self._state.sums = [one + more for one, more in zip(self._state.sums, whole.tolist(), strict=True)]
        self._sums.zero_()

    def _train(self, batch: Any) -> None:
        """A step. All rows count as much: a batch that is not full moves the weights less."""
        state, rows = self._state, self._order.batch_size
        state.optimizer.zero_grad()
        # As many backward passes in all workers, whoever has rows left.
        for part in _parts(batch, rows, self._order.passes):
            if part:
                measured = self._objective.measure(state.model, part, self._device)
                self._note(measured)
                share: Any = measured.loss * (len(next(iter(part.values()))) / rows)
                share.backward()
            else:
                nothing: Any = sum(parameter.sum() for parameter in state.model.parameters() if parameter.requires_grad)
                (nothing * 0).backward()
        state.optimizer.step()

    def _validate(self, batch: Any) -> None:
        if batch.rows:
            with torch.no_grad():
                measured = self._objective.measure(self._state.model, dict(batch), self._device)
            self._note(measured)

    def _note(self, measured: Measured) -> None:
        self._sums += measured.sums
        self._state.widths = measured.widths

    def _report(self, entry: Mapping[str, Any]) -> None:
        import elasticrun.torch as hvd

        if self._order.verbose and hvd.rank() == 0:
            parts = [f"{name} {entry[name]['loss']:.4f}" for name in ("train", "validation") if name in entry]
            said = f"epoch {entry['epoch'] + 1} of {self._order.epochs}: loss {', '.join(parts)}, {hvd.size()} workers"
            print(said, flush=True)


def kept(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> bytes:
    """Weights and optimizer state."""
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    return file.getvalue()


def restore(model: torch.nn.Module, optimizer: torch.optim.Optimizer, checkpoint: bytes) -> None:
    """Goes back to what :func:`kept` gave."""
    found = torch.load(io.BytesIO(checkpoint), map_location="cpu", weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])


def _parts(batch: Any, rows: int, count: int) -> Iterator[dict[str, Any] | None]:
    """So many parts of a batch; None for those without rows."""
    columns = dict(batch) if batch.rows else {}
    for start in range(0, rows * count, rows):
        here = start < batch.rows
        yield {name: column[start : start + rows] for name, column in columns.items()} if here else None


def _device(use_gpu: bool) -> torch.device:
    if not use_gpu or not torch.cuda.is_available():
        return torch.device("cpu")
    import elasticrun.torch as hvd

    # With GPUs as resources of Spark a worker sees that of its task alone.
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
