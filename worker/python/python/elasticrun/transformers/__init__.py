"""elasticrun for the Trainer of Hugging Face Transformers.

::

    from elasticrun.transformers import ElasticCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[ElasticCallback()])
    trainer.train()

Import this module before the ``TrainingArguments`` are created, which is when Transformers starts torch.distributed.
"""

from __future__ import annotations

from elasticrun._loops.extras import explain_missing

with explain_missing("transformers", "accelerate"):
    from .callback import ElasticCallback

__all__ = ["ElasticCallback"]
