"""elasticrun for the Trainer of Lightning.

::

    from elasticrun.lightning import ElasticCallback

    trainer = Trainer(strategy="ddp", max_epochs=3, callbacks=[ElasticCallback()])
    trainer.fit(model, loader)
"""

from __future__ import annotations

from elasticrun._loops.extras import explain_missing

with explain_missing("lightning"):
    from .callback import ElasticCallback

__all__ = ["ElasticCallback"]
