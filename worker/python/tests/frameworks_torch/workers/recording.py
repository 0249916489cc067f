"""What the workers of these tests share: data, a network, a record of what they did, and kills.

A KILL is STEP:RANK:PLACE: that rank ends itself in the step after STEP steps, once. At the PLACE `gradients` its optimizer has not
stepped; at the PLACE `end` only the commit is left, which the other ranks may make.
"""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import elasticrun
from elasticrun.data import ParquetDataset, torch_loader

SAMPLES = int(os.environ.get("SAMPLES", "96"))
BATCH = 4
#: Batches of an optimizer step.
ACCUMULATE = int(os.environ.get("ACCUMULATE", "1"))
#: Optimizer steps between two commits.
STEPS_PER_COMMIT = int(os.environ.get("STEPS_PER_COMMIT", "1"))


class Data(torch.utils.data.Dataset):
    """Samples that know their index."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return {"inputs": inputs, "labels": inputs[:3].sin(), "index": index}


def loader():
    """The training data: samples, or the same as rows of the Parquet files in $ROWS."""
    if rows := os.environ.get("ROWS"):
        step = int(os.environ.get("ROWS_OF_STEP", "8"))
        data = ParquetDataset(rows, order="deterministic", global_batch_size=step, stripes=12, seed=3)
        return torch_loader(data)
    return torch.utils.data.DataLoader(Data(), batch_size=BATCH, shuffle=True)


def write_rows(path):
    """Writes the samples as rows."""
    samples = [Data()[index] for index in range(SAMPLES)]
    columns = {
        "inputs": pa.array([one["inputs"].tolist() for one in samples], pa.list_(pa.float32(), 6)),
        "labels": pa.array([one["labels"].tolist() for one in samples], pa.list_(pa.float32(), 3)),
        "index": list(range(SAMPLES)),
    }
    pq.write_table(pa.table(columns), path, row_group_size=10)


def layers():
    """A network whose result depends on random numbers."""
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3))


class Record:
    """Writes a line for each step to FOLDER/steps.PID: round, rank, size, step, epoch, loss, rate, samples."""

    def __init__(self, folder, kills):
        self.folder = Path(folder)
        #: Samples of the batches of the step under way.
        self.samples = []
        self.kills = set(kills)
        #: Workers of the last step that this process took.
        self.size = 0

    def step(self, step, epoch, loss, rate):
        samples, self.samples = self.samples, []
        world = elasticrun.world()
        self.size = world.size
        with open(self.folder / f"steps.{os.getpid()}", "a") as file:
            print(world.round, world.rank, world.size, step, epoch, loss, rate, *samples, file=file)
        self.kill(step - 1, "end")

    def kill(self, step, place="gradients"):
        """Kills this process if it is its turn, once."""
        kill = f"{step}:{elasticrun.rank()}:{place}"
        mark = self.folder / f"killed.{kill}"
        if kill in self.kills and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def done(rank, size, step, epoch, parameters):
    """Prints where a worker has ended."""
    total = sum(parameter.double().abs().sum().item() for parameter in parameters)
    print(f"done rank {rank} of {size}: step {step} epoch {epoch} sum {total:.9f}", flush=True)
