"""One call of ``Trainer.train()``, which runs the Trainer's loop once in each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import extract_model_from_parallel
from torch.utils.data import DataLoader
from transformers.trainer_callback import ExportableState

import elasticrun.torch as hvd
from elasticrun._loops import loaders, rows
from elasticrun._loops.batches import ElasticBatches
from elasticrun._loops.intervals import Intervals
from elasticrun._loops.rows import RowBatches
from elasticrun.accelerate import process_state
from elasticrun.accelerate.loader import ElasticRowLoader, Hooks
from elasticrun.errors import ElasticrunError
from elasticrun.torch import elastic

#: Methods of a Trainer that are replaced in a round by those of :class:`Training`.
REPLACED = (
    "get_train_dataloader", "set_initial_training_values", "_init_training_state", "_prepare_for_training", "_run_epoch",
    "_maybe_log_save_evaluate",
)  # fmt: skip
#: Attributes of a Trainer that its loop initialises, and that a commit stores.
_COUNTERS = (
    "_total_loss_scalar",
    "_globalstep_last_logged",
    "_initial_global_step",
    "_initial_num_input_tokens_seen",
    "current_flos",
)
#: Fields of the TrainerState that belong to a process or follow from the number of workers.
_OWN = {
    "is_local_process_zero", "is_world_process_zero", "max_steps", "num_train_epochs", "logging_steps", "eval_steps",
    "save_steps", "stateful_callbacks", "trial_name", "trial_params",
}  # fmt: skip


class Training:
    """Calls the Trainer's loop in each round, and has it continue in the middle of an epoch."""

    def __init__(self, trainer: Any, callback: Any, intervals: Intervals) -> None:
        hvd.init()
        _require_supported(trainer.args)
        process_state.require_supported(trainer.accelerator)
        self._trainer = trainer
        # First, so that other callbacks see what it restores.
        callbacks = trainer.callback_handler.callbacks
        callbacks.remove(callback)
        callbacks.insert(0, callback)
        self._intervals = intervals
        if trainer.optimizer is None:
            trainer.create_optimizer()
        self._optimizer = trainer.optimizer
        self._loader = trainer.get_train_dataloader()
        self._batches: ElasticBatches | RowBatches
        position: dict[str, Any] = {}
        if (data := rows.data_of(self._loader)) is not None:
            self._batches = RowBatches(data)
        else:
            order = loaders.order_of(self._loader)
            seed = trainer.args.seed if trainer.args.data_seed is None else trainer.args.data_seed
            position = {"sampler": order.sampler(seed)}
            self._batches = order.batches(position["sampler"])
        #: The position before the first step.
        self._first: dict[str, Any] | None = None
        self._epoch_ends = False
        self._resumes = False
        self._state = elastic.TorchState(
            trainer.model, self._optimizer, **position, scaler=None, schedule=None, progress=None
        )

    def run(self, loop: Callable[..., Any]) -> Any:
        """Calls ``loop`` until it returns."""

        @elastic.run
        def train(state: Any) -> Any:
            process_state.enter_round()
            self._unwrap()
            self._intervals.begin()
            self._resumes = state.progress is not None
            if isinstance(self._batches, RowBatches):
                # Those of the state go back by themselves.
                position = state.progress["rows"] if self._resumes else self._first
                if position is not None:
                    self._batches.load_state_dict(position)
            self._batches.done = state.progress["done"] if self._resumes else 0
            self._batches.enter()
            self._first = self._first or self._batches.state_dict()
            with self._patched():
                return loop(**({"resume_from_checkpoint": None} if self._resumes else {}))

        return train(self._state)

    def begin(self, control: Any) -> None:
        """Restores what the loop has just initialised."""
        trainer, progress = self._trainer, self._state.progress
        if progress is None:
            return
        for name, value in progress["counters"].items():
            setattr(trainer, name, value)
        trainer._tr_loss = torch.tensor(progress["loss"], device=trainer.args.device)
        for name, value in progress["control"].items():
            setattr(control, name, value)

    def step_done(self, state: Any) -> None:
        """Moves the position behind the batches of the optimizer step."""
        self._batches.advance(self._trainer.current_gradient_accumulation_steps)
        state.epoch = self._batches.epoch + self._batches.done / len(self._batches)

    def epoch_done(self) -> None:
        """Moves to the next epoch, which the commit after its end begins with."""
        self._epoch_ends = True

    def _commit(self) -> None:
        trainer, state = self._trainer, self._state
        self._batches.agree()
        state.schedule = trainer.lr_scheduler.state_dict()
        scaler = trainer.accelerator.scaler
        state.scaler = None if scaler is None else scaler.state_dict()
        state.progress = {
            "done": self._batches.done,
            "rows": self._batches.state_dict() if isinstance(self._batches, RowBatches) else None,
            "loss": trainer._tr_loss.item(),
            "counters": {name: getattr(trainer, name) for name in _COUNTERS},
            "state": {name: value for name, value in vars(trainer.state).items() if name not in _OWN},
            "control": dict(vars(trainer.control)),
            "callbacks": [one.state()["attributes"] for one in self._exportable()],
        }
        state.commit()
        self._batches.committed()

    def _exportable(self) -> list[Any]:
        return [one for one in self._trainer.callback_handler.callbacks if isinstance(one, ExportableState)]

    def _unwrap(self) -> None:
        """Undoes what the loop of an earlier round has wrapped, and drops what was bound to its group."""
        trainer = self._trainer
        extract_model_from_parallel(trainer.model_wrapped, keep_fp32_wrapper=False)
        trainer.model_wrapped = trainer.callback_handler.model = trainer.model
        trainer.optimizer = self._optimizer
        trainer.callback_handler.optimizer = trainer.callback_handler.lr_scheduler = None
        trainer.callback_handler.train_dataloader = trainer.callback_handler.eval_dataloader = None
        vars(trainer).pop("_eval_dataloaders", None)
        trainer.accelerator.free_memory()

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Replaces methods of this Trainer by those below, which call the original ones."""
        trainer = self._trainer
        self._originals = {name: getattr(trainer, name) for name in REPLACED}
        vars(trainer).update({name: getattr(self, f"_{name.removeprefix('_')}") for name in REPLACED})
        try:
            yield
        finally:
            for name in REPLACED:
                del vars(trainer)[name]

    def _get_train_dataloader(self) -> Any:
        if isinstance(self._batches, RowBatches):
            return ElasticRowLoader(self._loader, self._batches, self._trainer.accelerator.device, False, Hooks())
        loader = DataLoader(self._loader.dataset, batch_sampler=self._batches, **loaders.arguments(self._loader))
        # One process, since the batches are already those of this one.
        return prepare_data_loader(
            loader, self._trainer.accelerator.device, 1, 0, put_on_device=True, non_blocking=self._loader._non_blocking
        )

    def _set_initial_training_values(self, args: Any, loader: Any) -> tuple[Any, ...]:
        """Numbers of steps with the current workers, of which those that are done were done with others."""
        values = list(self._originals["set_initial_training_values"](args, loader))
        batches = self._batches.steps_of_epoch
        steps = max(math.ceil(batches / args.gradient_accumulation_steps), 1)
        epochs, max_steps = math.ceil(args.num_train_epochs), math.ceil(args.num_train_epochs * steps)
        epoch, rest = self._batches.epoch, math.ceil(self._batches.remaining / args.gradient_accumulation_steps)
        done = self._state.progress["state"]["global_step"] if self._resumes else 0
        if args.max_steps > 0:
            max_steps = args.max_steps
            epochs = epoch + 1 + math.ceil(max(max_steps - done - rest, 0) / steps)
        elif self._resumes:
            max_steps = done + max(max_steps - (epoch + 1) * steps + rest, 0)
        values[0], values[1], values[5], values[6] = epochs, steps, batches, max_steps
        return tuple(values)

    def _init_training_state(
        self, max_steps: int, steps_of_epoch: int, epochs: int, checkpoint: str | None, trial: Any
    ) -> tuple[int, int]:
        trainer = self._trainer
        original = self._originals["_init_training_state"]
        epoch, batch = original(max_steps, steps_of_epoch, epochs, checkpoint, trial)
        if self._resumes:
            vars(trainer.state).update(self._state.progress["state"])
            for one, attributes in zip(self._exportable(), self._state.progress["callbacks"], strict=True):
                vars(one).update(attributes)
        elif checkpoint is not None:
            if batch and isinstance(self._batches, RowBatches):
                raise ElasticrunError(
                    f"resume_from_checkpoint: {checkpoint} is in the middle of an epoch, and the Trainer stores no position in"
                    ' a data set: save with save_strategy="epoch"'
                )
            self._batches.go_to(epoch)
            self._batches.advance(batch)
        return self._batches.epoch, 0

    def _prepare_for_training(self, max_steps: int, loader: Any, checkpoint: str | None) -> Any:
        trainer = self._trainer
        rates = [group["lr"] for group in self._optimizer.param_groups]
        prepared = self._originals["_prepare_for_training"](max_steps, loader, checkpoint)
        if self._resumes:
            # The schedule of the current number of steps, at the step that was reached.
            trainer.lr_scheduler.load_state_dict(self._state.schedule)
            for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            if self._state.scaler is not None:
                trainer.accelerator.scaler.load_state_dict(self._state.scaler)
        return prepared

    def _run_epoch(self, *, epoch: int, trial: Any, ignore_keys_for_eval: Any, **kwargs: Any) -> None:
        """Runs the batches that remain of the epoch; only its end if none does."""
        trainer = self._trainer
        batches, done = self._batches.remaining, self._batches.done
        rest = {"epoch": epoch, "trial": trial, "ignore_keys_for_eval": ignore_keys_for_eval}
        stops = trainer.control.should_training_stop
        if stops and done == 0:
            # The commit is behind the end of the last epoch.
            return
        if stops or (batches == 0 and done):
            trainer.control = trainer.callback_handler.on_epoch_end(trainer.args, trainer.state, trainer.control)
            self._maybe_log_save_evaluate(
                trainer._tr_loss, None, kwargs["model"], trial, epoch, ignore_keys_for_eval, kwargs["start_time"]
            )
            return
        kwargs["steps_in_epoch"] = batches
        kwargs["num_update_steps_per_epoch"] = math.ceil(batches / trainer.args.gradient_accumulation_steps)
        kwargs["resume_from_checkpoint"] = None
        self._originals["_run_epoch"](**rest, **kwargs)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._originals["_maybe_log_save_evaluate"](*args, **kwargs)
        ends, self._epoch_ends = self._epoch_ends, False
        if ends:
            self._batches.go_to(self._batches.epoch + 1)
        if self._intervals.due(last=ends or self._batches.remaining == 0):
            self._commit()


def _require_supported(args: Any) -> None:
    """Checks options of the Trainer that do not go with a change of the workers.

    Raises:
        ElasticrunError: an option does not.
    """
    refused = {
        "auto_find_batch_size": args.auto_find_batch_size,
        "fsdp": bool(args.fsdp),
        "deepspeed": bool(args.deepspeed),
    }
    for name, given in refused.items():
        if given:
            raise ElasticrunError(
                f"TrainingArguments({name}={getattr(args, name)!r}): the ElasticCallback supports models that each worker has"
                " as a whole (DistributedDataParallel), with a fixed batch size: leave it out"
            )
