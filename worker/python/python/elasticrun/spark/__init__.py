"""Jobs on the executors of Apache Spark.

In a Spark program::

    import elasticrun.spark

    results = elasticrun.spark.run(train, args=(config,), num_proc=4, min_num_proc=2, max_num_proc=8)

Spark lends up to ``max_num_proc`` task slots, each as a Spark job of its own. In each granted task a small service
starts one worker. Executors come and go, and the job goes on. See docs/spark.md.

It needs pyspark and an active ``SparkContext`` on the driver, and this package on the executors.
"""

from __future__ import annotations

from .dataset import SparkDataset, dataset
from .horovod import run_elastic
from .launch import run

__all__ = ["SparkDataset", "dataset", "run", "run_elastic"]
