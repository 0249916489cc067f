"""A Spark ML estimator that trains a torch model elastically on Spark executors."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pyspark import keyword_only
from pyspark.ml import Estimator
from pyspark.ml.param import TypeConverters
from pyspark.sql import DataFrame

from ...errors import ElasticrunError
from .. import store as files
from ..launch import run
from ..store import Store
from .checkpoint import restore
from .checkpoint_writer import CheckpointWriter
from .data import prepare
from .data_lease import DataLease
from .keywords import given, param, refuse, with_accessors
from .model import TorchModel
from .objective import Objective
from .persistence import Persistent
from .request import Request
from .train import Trained, train

__all__ = ["TorchEstimator"]

Loss = Callable[..., torch.Tensor]


@with_accessors
class TorchEstimator(Estimator, Persistent):
    """Trains a torch model on the rows of a data frame, each once in an epoch, even if executors are lost or added.

    ``fit`` writes the required columns to the store, trains with :func:`elasticrun.spark.run` and
    :class:`elasticrun.data.ParquetDataset`, deletes the written data, and returns a :class:`TorchModel`. The given model and
    optimizer do not change. Processed rows are committed together with the weights, so a failure repeats at most the steps
    since the last commit.

    Arguments have the names of Horovod's estimator where it has them. See docs/spark.md for the others.

    Args:
        model: the module to train.
        optimizer: optimizer of the parameters of ``model``.
        loss: a function or module of an output and a label that returns the mean over the rows, or a list with one for each label.
        loss_weights: weights of the losses. Default: 1 for each.
        metrics: functions like ``loss``, whose means are recorded in the history.
        feature_cols: columns of the model's arguments, in order: numbers, booleans, arrays of numbers, vectors.
        label_cols: columns for the losses, one for each output of the model.
        input_shapes: shapes of the model's arguments, with -1 for the number of rows. Default: (rows, values in a row).
        input_dtypes: types of the model's arguments. Default: ``torch.float32``.
        label_shapes: shapes of labels. Default: that of the output if it has as many values, else (rows) or (rows, values).
        label_dtypes: types of labels. Default: ``torch.float32``. ``torch.nn.CrossEntropyLoss`` needs ``[torch.long]``.
        sample_weight_col: column with weights of rows. With it, losses are called with ``reduction="none"``.
        validation: validation rows for the end of each epoch: a share between 0 and 1, or a column that is true for them.
        batch_size: rows per worker and backward pass.
        drop_last: whether to leave out the last rows of a worker in an epoch if they fill no batch. Default: they are trained on.
        val_batch_size: rows per worker and validation step. Default: ``batch_size``.
        epochs: number of epochs.
        train_steps_per_epoch: maximum number of steps per epoch.
        validation_steps_per_epoch: maximum number of steps per validation.
        backward_passes_per_step: backward passes whose gradients are accumulated for a step.
        gradient_compression: a compressor of ``elasticrun.torch.Compression``.
        scale_lr: whether the learning rate is multiplied by the current number of workers.
        shuffle: whether rows are shuffled, with a new order in each epoch.
        shuffle_buffer_size: number of rows in open row groups from which the next row is drawn; 0 does not shuffle.
        random_seed: seed of torch and of the order of rows.
        train_reader_num_workers: number of threads that read and decode in each worker.
        row_group_bytes: approximate size of a written row group.
        store: store of temporary data, and of the run's newest checkpoint.
        run_id: name of the run in the store. If the run exists, training starts with its weights.
        num_proc: workers needed to start; see :func:`elasticrun.spark.run` for this and the following arguments.
        min_num_proc: minimum workers; training pauses below it.
        max_num_proc: number of slots to request.
        checkpoint_every: number of epochs between checkpoints of the run in the store. The last epoch has one in any case.
        steps_per_commit: number of steps between commits. A failure repeats at most these; new workers join at a commit.
        reset_limit: maximum number of rounds after the first.
        cooldown_range: first and maximum cooldown of a slot whose worker failed.
        elastic_timeout: maximum wait for ``min_num_proc`` workers.
        start_timeout: maximum time from the start of a worker to its first round.
        env: environment variables of the workers.
        ship_binary: whether Spark sends the program ``elasticrun`` to the executors.
        use_gpu: whether to use GPUs if the executors have them.
        verbose: 0 is silent, 1 prints the results of each epoch, 2 logs each decision of the job.
        horovod: other arguments of Horovod's estimator. They cause a warning, or a TypeError that names a replacement.

    Raises:
        TypeError: an argument is not supported or does not exist.
    """

    model = param("model", "module to train")
    optimizer = param("optimizer", "over the parameters of model")
    loss = param("loss", "function of an output and a label, or a list of them")
    loss_weights = param("loss_weights", "of the losses", TypeConverters.toListFloat)
    metrics = param("metrics", "functions as loss, whose means are in the history")
    feature_cols = param("feature_cols", "columns that are arguments of the model", TypeConverters.toListString)
    label_cols = param("label_cols", "columns for the losses", TypeConverters.toListString)
    input_shapes = param("input_shapes", "shapes of the model's arguments")
    input_dtypes = param("input_dtypes", "types of the model's arguments")
    label_shapes = param("label_shapes", "shapes of labels")
    label_dtypes = param("label_dtypes", "types of labels")
    sample_weight_col = param("sample_weight_col", "column with weights of rows", TypeConverters.toString)
    validation = param("validation", "share of rows to validate with, or a column that says which")
    batch_size = param("batch_size", "rows of a worker at each backward pass", TypeConverters.toInt)
    drop_last = param("drop_last", "leaves out rows that fill no batch", TypeConverters.toBoolean)
    val_batch_size = param("val_batch_size", "rows of a worker at each step of validation", TypeConverters.toInt)
    epochs = param("epochs", "how often each row is trained on", TypeConverters.toInt)
    train_steps_per_epoch = param("train_steps_per_epoch", "most steps of an epoch", TypeConverters.toInt)
    validation_steps_per_epoch = param("validation_steps_per_epoch", "most steps of a validation", TypeConverters.toInt)
    backward_passes_per_step = param("backward_passes_per_step", "backward passes of a step", TypeConverters.toInt)
    gradient_compression = param("gradient_compression", "of elasticrun.torch.Compression")
    scale_lr = param("scale_lr", "multiplies the learning rate by the workers", TypeConverters.toBoolean)
    shuffle = param("shuffle", "whether rows are shuffled", TypeConverters.toBoolean)
    shuffle_buffer_size = param("shuffle_buffer_size", "rows of which the next is any", TypeConverters.toInt)
    random_seed = param("random_seed", "of torch and of the order of rows", TypeConverters.toInt)
    train_reader_num_workers = param("train_reader_num_workers", "threads that read", TypeConverters.toInt)
    row_group_bytes = param("row_group_bytes", "about how large a row group is", TypeConverters.toInt)
    store = param("store", "where data and checkpoints are")
    run_id = param("run_id", "names the run in the store", TypeConverters.toString)
    num_proc = param("num_proc", "workers needed to start", TypeConverters.toInt)
    min_num_proc = param("min_num_proc", "minimum workers; training pauses below it", TypeConverters.toInt)
    max_num_proc = param("max_num_proc", "slots that are asked for", TypeConverters.toInt)
    checkpoint_every = param("checkpoint_every", "epochs from one checkpoint to the next", TypeConverters.toInt)
    steps_per_commit = param("steps_per_commit", "steps from one commit to the next", TypeConverters.toInt)
    reset_limit = param("reset_limit", "most rounds after the first", TypeConverters.toInt)
    cooldown_range = param("cooldown_range", "of a slot whose worker failed")
    elastic_timeout = param("elastic_timeout", "longest wait for min_num_proc workers")
    start_timeout = param("start_timeout", "longest time of a worker to its first round")
    env = param("env", "variables of the workers")
    ship_binary = param("ship_binary", "Spark brings the program to the executors", TypeConverters.toBoolean)
    use_gpu = param("use_gpu", "whether GPUs are used", TypeConverters.toBoolean)
    verbose = param("verbose", "0, 1 or 2", TypeConverters.toInt)

    @keyword_only
    def __init__(
        self,
        *,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        loss: Loss | Sequence[Loss] | None = None,
        loss_weights: Sequence[float] | None = None,
        metrics: Sequence[Loss] | None = None,
        feature_cols: Sequence[str] | None = None,
        label_cols: Sequence[str] | None = None,
        input_shapes: Sequence[Sequence[int]] | None = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
        label_shapes: Sequence[Sequence[int]] | None = None,
        label_dtypes: Sequence[torch.dtype] | None = None,
        sample_weight_col: str | None = None,
        validation: str | float | None = None,
        batch_size: int | None = None,
        drop_last: bool | None = None,
        val_batch_size: int | None = None,
        epochs: int | None = None,
        train_steps_per_epoch: int | None = None,
        validation_steps_per_epoch: int | None = None,
        backward_passes_per_step: int | None = None,
        gradient_compression: Any = None,
        scale_lr: bool | None = None,
        shuffle: bool | None = None,
        shuffle_buffer_size: int | None = None,
        random_seed: int | None = None,
        train_reader_num_workers: int | None = None,
        row_group_bytes: int | None = None,
        store: Store | str | None = None,
        run_id: str | None = None,
        num_proc: int | None = None,
        min_num_proc: int | None = None,
        max_num_proc: int | None = None,
        checkpoint_every: int | None = None,
        steps_per_commit: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: tuple[float | str, float | str] | None = None,
        elastic_timeout: float | str | None = None,
        start_timeout: float | str | None = None,
        env: Mapping[str, str] | None = None,
        ship_binary: bool | None = None,
        use_gpu: bool | None = None,
        verbose: int | None = None,
        **horovod: Any,
    ) -> None:
        super().__init__()
        self._setDefault(
            batch_size=32,
            drop_last=False,
            epochs=1,
            backward_passes_per_step=1,
            scale_lr=True,
            shuffle=True,
            row_group_bytes=8 << 20,
            checkpoint_every=1,
            steps_per_commit=10,
            ship_binary=False,
            use_gpu=True,
            verbose=1,
        )
        refuse(given(horovod))
        keywords = {name: value for name, value in self._input_kwargs.items() if name not in horovod}
        self._set(**given(keywords))

    def setParams(self, **keywords: Any) -> TorchEstimator:  # Spark's name
        """Sets several parameters by name."""
        refuse(name for name in keywords if not self.hasParam(name))
        self._set(**{name: value for name, value in keywords.items() if self.hasParam(name)})
        return self

    def _get(self, name: str) -> Any:
        return self.getOrDefault(name) if self.isDefined(name) else None

    def _fit(self, frame: DataFrame) -> TorchModel:
        request = Request(self._get)
        objective = request.objective(frame)
        request.check_numbers()
        to = request.store()
        pickled = request.pickled(objective)
        session = frame.sparkSession
        run_id = self._get("run_id") or f"torch-{time.time_ns()}"
        begun = files.read(session, to.checkpoint(run_id))
        seed = self._get("random_seed")
        with DataLease(session, to) as data, CheckpointWriter(session, to.checkpoint(run_id)) as checkpoints:
            prepared = prepare(
                frame, data.path, objective.columns, request.validation(frame), seed or 0, self._get("row_group_bytes")
            )
            objective.inputs.check(prepared.widths, "input")
            objective.labels.check(prepared.widths, "label")
            (trained, *_) = run(
                train,
                (request.train_spec(pickled, begun, prepared),),
                **{name: self._get(name) for name in ("num_proc", "min_num_proc", "max_num_proc")},
                reset_limit=self._get("reset_limit"),
                cooldown_range=self._get("cooldown_range"),
                elastic_timeout=self._get("elastic_timeout"),
                start_timeout=self._get("start_timeout"),
                env=self._get("env"),
                verbose=self._get("verbose") - 1,
                spark_context=session.sparkContext,
                ship_binary=self._get("ship_binary"),
                _on_progress=checkpoints.offer,
            )
        if not isinstance(trained, Trained):
            raise ElasticrunError("rank 0 brought no model back")
        files.replace(session, to.checkpoint(run_id), trained.checkpoint)
        return self._made(pickled, trained, objective, run_id)

    def _made(self, pickled: bytes, trained: Trained, objective: Objective, run_id: str) -> TorchModel:
        """A copy of the estimator's model with the trained weights."""
        model, optimizer, *_ = pickle.loads(pickled)
        restore(model, optimizer, trained.checkpoint)
        model.eval()
        made = TorchModel(
            model=model,
            optimizer=optimizer,
            feature_columns=list(objective.inputs.names),
            label_columns=list(objective.labels.names),
            input_shapes=self._get("input_shapes"),
            input_dtypes=self._get("input_dtypes"),
            history=trained.history,
            run_id=run_id,
            output_widths=trained.widths,
        )
        return made._resetUid(self.uid.replace("Estimator", "Model"))
