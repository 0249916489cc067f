# The digits in cells, as a notebook has them: open this file as one (VS Code, Jupyter with jupytext), or run it as it is:
#   python notebook.py STORE spark://HOST:7077
# STORE is a directory that all executors reach. It needs pyspark, torch and elasticrun here, and torch and elasticrun on
# the executors.

# %% A session, as the notebooks of a cluster have one already
import sys

from pyspark.sql import SparkSession

import elasticrun.spark
from elasticrun.examples.data import CLASSES, PIXELS, load

STORE, MASTER = sys.argv[1:3]
spark = SparkSession.builder.appName("notebook").master(MASTER).getOrCreate()

# %% The rows, from wherever they are
digits, tests = load()
frame = spark.createDataFrame(
    [(list(digit.pixels), digit.label) for digit in digits], "pixels array<float>, label long"
)
frame.groupBy("label").count().orderBy("label").show()

# %% Written once for all workers to read
data = elasticrun.spark.dataset(frame, STORE)


# %% What each worker runs; it is defined here, and travels
def train(data, epochs):
    import torch

    import elasticrun.torch as hvd

    hvd.init()
    model = torch.nn.Linear(PIXELS, CLASSES)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, data=data.open(batch_size=32), losses=[])

    @hvd.elastic.run
    def loop(state):
        for _ in state.data.epochs(epochs):
            for batch in state.data:
                optimizer.zero_grad()
                rows = batch.torch()
                loss = torch.nn.functional.cross_entropy(model(rows["pixels"]), rows["label"], reduction="sum") / 32
                loss.backward()
                optimizer.step()
                state.commit()
            state.losses = [*state.losses, float(hvd.allreduce(loss.detach()))]

    loop(state)
    return {name: tensor.tolist() for name, tensor in model.state_dict().items()}, state.losses, hvd.size()


# %% Two workers to begin with, up to four as Spark grants them
weights, losses, size = elasticrun.spark.run(train, (data, 8), num_proc=2, min_num_proc=1, max_num_proc=4)[0]
print("workers at the end:", size)

# %% How it went
for epoch, loss in enumerate(losses, 1):
    print(f"epoch {epoch}: {loss:.3f} {'#' * round(20 * loss)}")

# %% And what it can do
import torch

model = torch.nn.Linear(PIXELS, CLASSES)
model.load_state_dict({name: torch.tensor(values) for name, values in weights.items()})
scores = model(torch.tensor([digit.pixels for digit in tests]))
right = (scores.argmax(1) == torch.tensor([digit.label for digit in tests])).float().mean()
print(f"reads {right:.1%} of the test digits")

# %% Nothing stays behind
data.delete(frame)
spark.stop()
