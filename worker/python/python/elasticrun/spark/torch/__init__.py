"""An estimator of Spark ML that trains a torch model elastically.

::

    from elasticrun.spark.store import Store
    from elasticrun.spark.torch import TorchEstimator

    estimator = TorchEstimator(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=cross_entropy,
        feature_cols=["pixels"], label_cols=["label"], batch_size=32, epochs=5,
        store=Store("s3://bucket/tmp"), num_proc=4, min_num_proc=2,
    )
    trained = estimator.fit(frame)
    trained.transform(frame).select("label", "label__output")

See docs/spark.md. The driver and the executors need torch.
"""

from __future__ import annotations

from .estimator import TorchEstimator
from .model import TorchModel

__all__ = ["TorchEstimator", "TorchModel"]
