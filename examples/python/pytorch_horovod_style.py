"""Learns to read handwritten digits as a Horovod script does; only its import differs.

elasticrun -np 4 --min-np 2 python pytorch_horovod_style.py
"""

from __future__ import annotations

import argparse

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import elasticrun.torch as hvd
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

BATCH = 32
LEARNING_RATE = 0.02


def data_set(digits: list[Digit]) -> TensorDataset:
    """Images in rows, and their labels."""
    pixels = torch.tensor([list(digit.pixels) for digit in digits], dtype=torch.float32)
    return TensorDataset(pixels, torch.tensor([digit.label for digit in digits]))


def main() -> None:
    """Trains, and has rank 0 print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in 16 bits")
    parser.add_argument("--use-adasum", action="store_true", help="combine steps by Adasum")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(1998)
    training, tests = map(data_set, load())
    sampler = hvd.elastic.ElasticSampler(training, seed=1998)
    loader = DataLoader(training, batch_size=BATCH, sampler=sampler)

    model = torch.nn.Sequential(torch.nn.Linear(PIXELS, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    # A larger batch takes a larger step; Adasum finds its own.
    scale = 1 if options.use_adasum else hvd.size()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE * scale, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if options.use_adasum else hvd.Average,
    )

    def adapt_rate() -> None:
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 if options.use_adasum else hvd.size())

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    state.register_reset_callbacks([adapt_rate])

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch < options.epochs:
            total = torch.zeros(2)
            for index, (pixels, labels) in enumerate(loader):
                optimizer.zero_grad()
                loss = cross_entropy(model(pixels), labels)
                loss.backward()
                optimizer.step()
                total += torch.tensor([loss.item() * len(labels), len(labels)])
                sampler.record_batch(index, BATCH)
                state.commit()
            loss, count = hvd.allreduce(total, op=hvd.Sum).tolist()
            if hvd.rank() == 0 and count:
                print(
                    f"epoch {state.epoch + 1}: loss {loss / count:.4f}, {hvd.size()} workers",
                    flush=True,
                )
            state.epoch += 1
            sampler.set_epoch(state.epoch)

    train(state)
    pixels, labels = tests.tensors
    with torch.no_grad():
        right = (model(pixels).argmax(1) == labels).float().mean()
    if hvd.rank() == 0:
        print(f"reads {right.item():.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
