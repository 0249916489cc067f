"""Jobs on the executors of Apache Spark.

In a Spark program::

    import elasticrun.spark

    results = elasticrun.spark.run(train, args=(config,), num_proc=4, min_num_proc=2, max_num_proc=8)

Spark provides up to ``max_num_proc`` task slots, each in a separate Spark job. In each granted task a small service starts
one worker. The job continues when executors are added or lost. See docs/spark.md.

The driver needs pyspark and an active ``SparkContext``. The executors need this package.
"""

from __future__ import annotations

from .dataset import SparkDataset, dataset
from .horovod import run_elastic
from .launch import run

__all__ = ["SparkDataset", "dataset", "run", "run_elastic"]
