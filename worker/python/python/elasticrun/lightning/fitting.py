"""One call of ``Trainer.fit()``, which sets up and runs Lightning's loops once in each round."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

import elasticrun.torch as hvd
from elasticrun._loops import loaders, rows, waiting_group
from elasticrun._loops.batches import ElasticBatches
from elasticrun._loops.intervals import Intervals
from elasticrun._loops.rows import RowBatches, RowLoader
from elasticrun.errors import ElasticrunError
from elasticrun.torch import elastic

from . import epoch_metrics, packages

#: What a ModelCheckpoint remembers of its last file, and does not put into its state.
_SAVED = ("_last_global_step_saved", "_last_checkpoint_saved")


class ElasticLoader(DataLoader[Any]):
    """A data loader over elastic batches, whose position Lightning's own checkpoints contain as well."""

    batch_sampler: ElasticBatches
    #: The loader of the user.
    original: DataLoader[Any]

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return self.batch_sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes to a position."""
        self.batch_sampler.load_state_dict(state_dict)


class Fitting:
    """Calls the Trainer's ``_run()`` in each round, and has it continue in the middle of an epoch."""

    def __init__(self, trainer: Any, intervals: Intervals) -> None:
        hvd.init()
        waiting_group.require_none_but_ours()
        _require_supported(trainer)
        self._trainer = trainer
        self._intervals = intervals
        self._loop = trainer.fit_loop
        self._batches: ElasticBatches | RowBatches | None = None
        self._resumes = False
        self._state = elastic.TorchState(checkpoint=None, position=None, metrics=None, should_stop=False, saved=None)

    def run(self, run: Callable[[], Any]) -> Any:
        """Calls ``run`` until it returns."""

        @elastic.run
        def train(state: Any) -> Any:
            self._enter_round()
            with self._patched():
                return run()

        return train(self._state)

    def begin(self) -> None:
        """Restores what belongs to the epoch under way. Commits the initial state if there was no commit.

        Raises:
            ElasticrunError: there are several training loaders.
        """
        count = len(self._loop._combined_loader.flattened)
        if count != 1:
            raise ElasticrunError(f"the ElasticCallback supports one training DataLoader, not {count}")
        if not self._resumes:
            self._commit()
            return
        self._trainer.should_stop = self._state.should_stop
        for callback, saved in zip(self._trainer.checkpoint_callbacks, self._state.saved, strict=True):
            vars(callback).update(saved)
        epoch_metrics.restore(self._loop.epoch_loop._results, self._state.metrics)

    def _enter_round(self) -> None:
        """Initialises torch.distributed for the round, and drops what Lightning has bound to an earlier one."""
        trainer, loop = self._trainer, self._loop
        cpu = trainer.strategy.parallel_devices[0].type == "cpu"
        if cpu:
            # One processor device serves any number of workers.
            count = max(len(trainer.strategy.parallel_devices), hvd.local_rank() + 1)
            trainer.strategy.parallel_devices = [torch.device("cpu")] * count
        hvd.init_process_group("elasticrun" if cpu else None)
        for one in (loop, loop.epoch_loop.val_loop):
            if one._data_fetcher is not None:
                one._data_fetcher.teardown()
                one._data_fetcher = None
            one._combined_loader = None
        trainer._signal_connector.teardown()
        trainer.training = True
        self._batches = None
        self._intervals.begin()
        self._resumes = self._state.checkpoint is not None
        if self._resumes:
            trainer.num_sanity_val_steps = 0

    @contextmanager
    def _patched(self) -> Iterator[None]:
        """Replaces methods of this Trainer's parts by those below, which call the original ones."""
        trainer, loop = self._trainer, self._loop
        replaced = [
            (trainer._checkpoint_connector, "resume_start", self._resume_start),
            (trainer._data_connector, "_prepare_dataloader", self._prepare_dataloader),
            (loop, "on_advance_end", self._on_epoch_end),
            (loop.epoch_loop, "reset", self._reset),
            (loop.epoch_loop, "on_advance_end", self._on_batch_end),
        ]
        self._originals = {(owner, name): getattr(owner, name) for owner, name, _ in replaced}
        for owner, name, method in replaced:
            vars(owner)[name] = method
        try:
            yield
        finally:
            for owner, name, _ in replaced:
                del vars(owner)[name]

    def _resume_start(self, *args: Any, **kwargs: Any) -> None:
        """Has Lightning restore the commit as if it had read it from a file."""
        connector = self._trainer._checkpoint_connector
        if not self._resumes:
            self._originals[connector, "resume_start"](*args, **kwargs)
            return
        connector._ckpt_path = None
        connector._loaded_checkpoint = dict(self._state.checkpoint)

    def _prepare_dataloader(self, loader: Any, shuffle: bool, mode: Any) -> Any:
        """Makes the loader of the training data elastic."""
        connector = self._trainer._data_connector
        if mode != packages.module("trainer.states").RunningStage.TRAINING:
            return self._originals[connector, "_prepare_dataloader"](loader, shuffle, mode)
        if isinstance(loader, (ElasticLoader, RowLoader)):
            # A CombinedLoader of the user keeps what it was given in an earlier round.
            loader = loader.original
        data = rows.data_of(loader)
        if isinstance(self._batches, RowBatches) and data is not None:
            # Lightning asks for the data again at the beginning of an epoch.
            return RowLoader(loader, self._batches)
        batches = self._batches_of(loader) if data is None else RowBatches(data)
        if self._batches is not None:
            # Lightning asks for the data again at the beginning of an epoch.
            batches.go_to(self._batches.epoch)
        elif self._resumes:
            batches.load_state_dict(self._state.position)
        else:
            batches.go_to(self._loop.epoch_progress.current.processed)
        self._batches = batches
        batches.enter()
        if isinstance(batches, RowBatches):
            return RowLoader(loader, batches)
        elastic_loader = ElasticLoader(loader.dataset, batch_sampler=batches, **loaders.arguments(loader))
        elastic_loader.original = loader
        return elastic_loader

    @staticmethod
    def _batches_of(loader: Any) -> ElasticBatches:
        order = loaders.order_of(loader)
        return order.batches(order.sampler(int(os.environ.get("PL_GLOBAL_SEED", "0"))))

    def _reset(self) -> None:
        """Continues behind the last batch of the commit, or begins an epoch."""
        loop = self._loop.epoch_loop
        original = self._originals[loop, "reset"]
        if not self._resumes or not loop.restarting:
            original()
            return
        # Between epochs, the counters of the epoch begin anew.
        loop._restarting = self._in_epoch()
        original()
        # The commit is behind the validation of its batch, so there is nothing to make up for.
        loop.restarting = False

    def _on_batch_end(self, fetcher: Any) -> None:
        loop = self._loop.epoch_loop
        self._originals[loop, "on_advance_end"](fetcher)
        assert self._batches is not None
        self._batches.advance()
        stepped = not loop._should_accumulate()
        if stepped and self._intervals.due(last=self._batches.remaining == 0):
            self._commit()

    def _on_epoch_end(self) -> None:
        loop = self._loop
        self._originals[loop, "on_advance_end"]()
        assert self._batches is not None
        if len(self._batches) != self._batches.steps_of_epoch:
            # The next epoch has another number of batches, which Lightning counts when it asks for the data.
            loop._combined_loader = None
        self._batches.go_to(self._batches.epoch + 1)
        self._commit()

    def _commit(self) -> None:
        trainer, state = self._trainer, self._state
        if self._batches is not None:
            self._batches.agree()
        checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        state.checkpoint = {key: value for key, value in checkpoint.items() if not key.startswith("hyper_parameters")}
        state.position = None if self._batches is None else self._batches.state_dict()
        state.metrics = epoch_metrics.capture(self._loop.epoch_loop._results) if self._in_epoch() else {}
        state.should_stop = trainer.should_stop
        # All workers make the same collective calls only if they agree on what was saved.
        state.saved = [
            {name: value for name, value in vars(callback).items() if name in _SAVED}
            for callback in trainer.checkpoint_callbacks
        ]
        state.commit()
        if self._batches is not None:
            self._batches.committed()

    def _in_epoch(self) -> bool:
        return self._batches is not None and self._batches.done > 0


def _require_supported(trainer: Any) -> None:
    """Checks that each worker trains a replica of the model.

    Raises:
        ElasticrunError: it does not.
    """
    strategy = packages.module("strategies").DDPStrategy
    if type(trainer.strategy) is not strategy or trainer.strategy._start_method != "popen":
        raise ElasticrunError(
            f'Trainer(strategy=...) is a {type(trainer.strategy).__name__}: the ElasticCallback supports strategy="ddp",'
            " where each worker has the whole model"
        )
