"""elasticrun for training loops on Hugging Face Accelerate.

::

    import elasticrun.accelerate

    @elasticrun.accelerate.run
    def train(progress):
        accelerator = Accelerator()
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
        for epoch in progress.epochs(3):
            for batch in loader:
                ...

    train()

Import this module before an ``Accelerator`` is created, which is when Accelerate starts torch.distributed.
"""

from __future__ import annotations

from elasticrun._loops.extras import explain_missing

with explain_missing("accelerate"):
    from .progress import Progress
    from .training import run

__all__ = ["Progress", "run"]
