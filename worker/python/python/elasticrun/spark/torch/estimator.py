"""An estimator of Spark ML that trains a torch model on Spark's executors, which may come and go meanwhile."""

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
from .data import prepare
from .keywords import given, param, refuse, with_accessors
from .model import TorchModel
from .objective import Objective
from .persistence import Persistent
from .request import Request
from .train import Trained, restore, train

__all__ = ["TorchEstimator"]

Loss = Callable[..., torch.Tensor]


@with_accessors
class TorchEstimator(Estimator, Persistent):
    """Trains a torch model on the rows of a data frame, each once in an epoch, whatever becomes of the executors.

    ``fit`` writes the columns that are needed to the store, trains with :func:`elasticrun.spark.run` and
    :class:`elasticrun.data.ParquetDataset`, deletes what it wrote, and gives a :class:`TorchModel`. The model and the optimizer
    that were given stay as they are. Rows that were processed are committed together with the weights, so a failure repeats
    at most the steps since the last commit.

    The names of arguments are those of Horovod's estimator where it has them; see docs/spark.md for the others.

    Args:
        model: the module to train.
        optimizer: over the parameters of ``model``.
        loss: a function or module of an output and a label that gives the mean over the rows; a list of them, one for each label.
        loss_weights: of the losses; 1 for each without.
        metrics: functions as ``loss``, whose means are in the history.
        feature_cols: columns that are arguments of the model, in their order: numbers, truth values, arrays of numbers, vectors.
        label_cols: columns for the losses, one for each output of the model.
        input_shapes: shapes of the model's arguments, with -1 in the place of the rows; without, (rows, values in a row).
        input_dtypes: types of the model's arguments; ``torch.float32`` without.
        label_shapes: shapes of labels; without, that of the output if it has as many values, else (rows) or (rows, values).
        label_dtypes: types of labels; ``torch.float32`` without. ``torch.nn.CrossEntropyLoss`` wants ``[torch.long]``.
        sample_weight_col: a column with weights of rows; losses are called with ``reduction="none"`` then.
        validation: the share of rows, between 0 and 1, or a column that is true for those, to validate with behind each epoch.
        batch_size: rows of a worker at each backward pass.
        val_batch_size: rows of a worker at each step of validation; ``batch_size`` without.
        epochs: how often each row is trained on.
        train_steps_per_epoch: most steps of an epoch.
        validation_steps_per_epoch: most steps of a validation.
        backward_passes_per_step: backward passes whose gradients add up to a step.
        gradient_compression: of ``elasticrun.torch.Compression``.
        scale_lr: whether the learning rate is multiplied by the number of workers, as it is at the time.
        shuffle: whether rows are shuffled, anew in each epoch.
        shuffle_buffer_size: the next row is any of so many in the open row groups; 0 does not shuffle.
        random_seed: of torch and of the order of rows.
        train_reader_num_workers: threads that read and decode in each worker.
        row_group_bytes: about how large a row group is as written.
        store: where data is written meanwhile, and the checkpoint of the run at its end.
        run_id: names the run in the store. A run that was there before is gone on with: its weights are the first ones.
        num_proc: workers needed to start; see :func:`elasticrun.spark.run` for this and what follows.
        min_num_proc: below it training waits.
        max_num_proc: slots that are asked for.
        steps_per_commit: steps from one commit to the next: what a failure repeats at most, and newcomers wait for.
        reset_limit: most rounds after the first.
        cooldown_range: first and longest cooldown of a slot whose worker failed.
        elastic_timeout: longest wait for ``min_num_proc`` workers.
        start_timeout: longest time from the start of a worker to its first round.
        env: variables of the workers.
        ship_binary: Spark brings the program ``elasticrun`` to the executors.
        use_gpu: whether GPUs are used if the executors have them.
        verbose: 0 is silent, 1 says what each epoch came to, 2 logs each decision of the job.
        horovod: other keywords of Horovod's: a warning, or a TypeError that says what to use.

    Raises:
        TypeError: a keyword is not supported, or there is none such.
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
    min_num_proc = param("min_num_proc", "below it training waits", TypeConverters.toInt)
    max_num_proc = param("max_num_proc", "slots that are asked for", TypeConverters.toInt)
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
            epochs=1,
            backward_passes_per_step=1,
            scale_lr=True,
            shuffle=True,
            row_group_bytes=8 << 20,
            steps_per_commit=10,
            ship_binary=False,
            use_gpu=True,
            verbose=1,
        )
        refuse(given(horovod))
        own = {name: value for name, value in self._input_kwargs.items() if name not in horovod}
        self._set(**given(own))

    def setParams(self, **keywords: Any) -> TorchEstimator:  # Spark's name
        """Sets several by their names."""
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
        prepared = prepare(
            frame, to, objective.columns, request.validation(frame), seed or 0, self._get("row_group_bytes")
        )
        try:
            objective.inputs.check(prepared.widths, "input")
            objective.labels.check(prepared.widths, "label")
            (trained, *_) = run(
                train,
                (request.order(pickled, begun, prepared),),
                **{name: self._get(name) for name in ("num_proc", "min_num_proc", "max_num_proc")},
                reset_limit=self._get("reset_limit"),
                cooldown_range=self._get("cooldown_range"),
                elastic_timeout=self._get("elastic_timeout"),
                start_timeout=self._get("start_timeout"),
                env=self._get("env"),
                verbose=self._get("verbose") - 1,
                spark_context=session.sparkContext,
                ship_binary=self._get("ship_binary"),
            )
        finally:
            files.delete(session, prepared.path)
        if not isinstance(trained, Trained):
            raise ElasticrunError("rank 0 brought no model back")
        files.write(session, to.checkpoint(run_id), trained.checkpoint)
        return self._made(pickled, trained, objective, run_id)

    def _made(self, pickled: bytes, trained: Trained, objective: Objective, run_id: str) -> TorchModel:
        """The model of this estimator with the weights that came back; this one's stay."""
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
