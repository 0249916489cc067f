"""Trains handwritten digits with an estimator of Spark ML, on executors that may come and go meanwhile.

spark-submit digits_estimator.py STORE        or        python digits_estimator.py STORE spark://HOST:7077
STORE is a directory that all executors reach, such as s3a://bucket/tmp. It needs pyspark, torch and elasticrun here, and
torch and elasticrun on the executors.
"""

from __future__ import annotations

import sys

import torch
from pyspark.sql import SparkSession

from elasticrun.examples.data import CLASSES, PIXELS, load
from elasticrun.spark.store import Store
from elasticrun.spark.torch import TorchEstimator


def main() -> None:
    """Fits, and says how many digits of the test are read rightly."""
    builder = SparkSession.builder.appName("digits")
    if len(sys.argv) > 2:
        builder = builder.master(sys.argv[2])
    spark = builder.getOrCreate()
    frames = [
        spark.createDataFrame(
            [(list(digit.pixels), digit.label) for digit in digits], "pixels array<double>, label int"
        )
        for digits in load()
    ]
    train, test = frames

    network = torch.nn.Sequential(torch.nn.Linear(PIXELS, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    estimator = TorchEstimator(
        model=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.2),
        loss=torch.nn.CrossEntropyLoss(),
        label_dtypes=[torch.long],
        feature_cols=["pixels"],
        label_cols=["label"],
        validation=0.1,
        batch_size=16,
        epochs=8,
        store=Store(sys.argv[1]),
        num_proc=2,
        min_num_proc=1,
        max_num_proc=4,
    )
    model = estimator.fit(train)

    rows = model.transform(test).select("label", "label__output").collect()
    right = sum(row.label == row.label__output.toArray().argmax() for row in rows)
    print(f"reads {right / len(rows):.1%} of the test digits", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
