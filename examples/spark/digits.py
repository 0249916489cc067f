"""Trains handwritten digits on Spark's executors, which may come and go meanwhile.

spark-submit digits.py        or        python digits.py spark://HOST:7077
It needs pyspark and elasticrun here, and elasticrun on the executors.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import elasticrun.spark


def train() -> tuple[int, int]:
    """What each worker runs: gives its rank and how many there are at the end."""
    import elasticrun
    from elasticrun.examples import digits

    digits.main()
    return elasticrun.rank(), elasticrun.size()


def main() -> None:
    """Asks Spark for two workers to begin with, and for up to four."""
    builder = SparkSession.builder.appName("digits")
    if len(sys.argv) > 1:
        builder = builder.master(sys.argv[1])
    spark = builder.getOrCreate()
    print(elasticrun.spark.run(train, num_proc=2, min_num_proc=1, max_num_proc=4))
    spark.stop()


if __name__ == "__main__":
    main()
