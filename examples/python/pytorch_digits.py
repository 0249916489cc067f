"""Learns to read handwritten digits with PyTorch's DistributedDataParallel, whatever becomes of the workers.

elasticrun -np 4 --min-np 2 python pytorch_digits.py
torchrun and a checkpoint would do as well, but for the seconds and the steps that they lose at each failure.
"""

from __future__ import annotations

import argparse

import torch
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as hvd
from elasticrun.examples.data import CLASSES, PIXELS, Digit, load

BATCH = 32


def tensors(digits: list[Digit]) -> tuple[torch.Tensor, torch.Tensor]:
    """Images in rows, and their labels."""
    pixels = torch.tensor([list(digit.pixels) for digit in digits], dtype=torch.float32)
    return pixels, torch.tensor([digit.label for digit in digits])


def main() -> None:
    """Trains, and has rank 0 print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--backend", help="elasticrun, gloo or nccl; the default goes by the hardware")
    options = parser.parse_args()

    hvd.init()
    # In each round anew, before train() is called.
    hvd.init_process_group(options.backend)
    torch.manual_seed(1998)
    network = torch.nn.Sequential(torch.nn.Linear(PIXELS, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    (pixels, labels), (test_pixels, test_labels) = map(tensors, load())
    sampler = hvd.elastic.ElasticSampler(labels, seed=1998)
    state = hvd.elastic.TorchState(network, optimizer, sampler=sampler, loss=0.0)

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> float:
        # It is bound to the members of the round.
        model = DistributedDataParallel(network)
        while sampler.epoch < options.epochs:
            for batch in sampler.batches(BATCH):
                chosen = torch.tensor(batch, dtype=torch.long)
                # The last batches may be of different sizes, so sums are averaged by hand.
                loss = cross_entropy(model(pixels[chosen]), labels[chosen], reduction="sum")
                optimizer.zero_grad()
                (loss * hvd.size() / batch.global_size).backward()
                optimizer.step()
                state.loss += hvd.allreduce(loss.detach(), op=hvd.Sum).item()
                sampler.record(batch)
                state.commit()
            if hvd.rank() == 0:
                loss = state.loss / len(labels)
                print(f"epoch {sampler.epoch + 1}: loss {loss:.4f}, {hvd.size()} workers", flush=True)
            state.loss = 0.0
            sampler.set_epoch(sampler.epoch + 1)
        with torch.no_grad():
            return float((network(test_pixels).argmax(1) == test_labels).float().mean())

    share = train(state)
    if hvd.rank() == 0:
        print(f"reads {share:.1%} of the test digits", flush=True)


if __name__ == "__main__":
    main()
