"""The process state of Accelerate, whose rank and number of processes are those of the current round."""

from __future__ import annotations

import functools
from typing import Any

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType

import elasticrun.torch as hvd
from elasticrun import _native, lifecycle
from elasticrun._loops import waiting_group
from elasticrun._loops.job import in_job
from elasticrun.errors import ElasticrunError

_SUPPORTED = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


def install() -> None:
    """Has :class:`accelerate.PartialState` of workers of a job create no group of torch's own. Further calls do nothing."""
    original = PartialState.__init__
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def initialise(self: PartialState, cpu: bool = False, **kwargs: Any) -> None:
        if in_job() and not PartialState._shared_state:
            if lifecycle.is_initialized() and _native.in_round():
                hvd.init_process_group(_back_end(cpu))
            else:
                waiting_group.form()
        original(self, cpu, **kwargs)

    PartialState.__init__ = initialise


def is_formed() -> bool:
    """Whether Accelerate has a process state."""
    return bool(PartialState._shared_state)


def _back_end(cpu: bool) -> str | None:
    # Accelerate calls its back end for CPUs gloo; ours takes its place.
    return "elasticrun" if cpu else None


def require_supported(accelerator: Accelerator) -> None:
    """Checks that Accelerate trains replicas of the model with torch.distributed, and that each worker reads its own batches.

    Raises:
        ElasticrunError: it does not.
    """
    waiting_group.require_none_but_ours()
    kind = PartialState().distributed_type
    if kind == DistributedType.NO:
        raise ElasticrunError(
            "Accelerate does not use torch.distributed here, so each worker would train alone: on hosts without GPUs pass"
            " use_cpu=True to TrainingArguments, or cpu=True to Accelerator"
        )
    if AcceleratorState._shared_state:
        kind = AcceleratorState().distributed_type
    if kind not in _SUPPORTED:
        raise ElasticrunError(
            f"Accelerate uses {kind.value}: elastic training supports {' and '.join(one.value for one in _SUPPORTED)}"
            " (DistributedDataParallel), where each worker has the whole model"
        )
    if accelerator.split_batches or accelerator.dispatch_batches:
        raise ElasticrunError(
            "split_batches=True and dispatch_batches=True of Accelerate fix the number of workers: leave them out, and choose"
            " the batch size of a worker"
        )


def enter_round() -> None:
    """Initialises torch.distributed for the current round, and has Accelerate see its ranks."""
    hvd.init_process_group(_back_end(PartialState().device.type == "cpu"))
    world = lifecycle.world()
    ranks = {
        "num_processes": world.size,
        "process_index": world.rank,
        "local_process_index": world.local_rank,
    }
    for shared in (PartialState._shared_state, AcceleratorState._shared_state):
        if shared:
            shared.update(ranks)
    # Loaders of an earlier round, whose iteration was cut short.
    GradientState().dataloader_references = [None]
