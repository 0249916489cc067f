"""Trains with Accelerate: accelerate_loop.py FOLDER EPOCHS [KILLS...]; see recording.py.

With EPOCHS 0, it trains until an epoch ends with a step of two workers.
"""

import sys

import recording
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

import elasticrun.accelerate

folder, epochs = sys.argv[1], int(sys.argv[2])
record = recording.Record(folder, sys.argv[3:])
set_seed(17)
network = recording.layers()


class Seen:
    """Counts samples, as an object of the user."""

    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


@elasticrun.accelerate.run(steps_per_commit=recording.STEPS_PER_COMMIT, steps=0)
def train(progress):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=recording.ACCUMULATE)
    seen = Seen()
    accelerator.register_for_checkpointing(seen)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    loader = recording.loader()
    model, optimizer, loader, schedule = accelerator.prepare(network, optimizer, loader, schedule)
    # Of a step that was cut short.
    record.samples.clear()
    for epoch in progress.epochs(epochs or 100000):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = (model(batch["inputs"]) - batch["labels"]).square().mean()
                accelerator.backward(loss)
                record.samples += batch["index"].tolist()
                if accelerator.sync_gradients:
                    record.kill(progress.steps)
                optimizer.step()
                (rate,) = schedule.get_last_lr()
                schedule.step()
                optimizer.zero_grad()
            seen.count += accelerator.reduce(torch.tensor(len(batch["index"]))).item()
            mean = accelerator.reduce(loss.detach(), "mean").item()
            if accelerator.sync_gradients:
                progress.steps += 1
                record.step(progress.steps, epoch + 1, mean, rate)
        accelerator.wait_for_everyone()
        assert seen.count == (epoch + 1) * recording.SAMPLES, seen.count
        if epochs == 0 and record.size == 2:
            break
    recording.done(
        accelerator.process_index, accelerator.num_processes, progress.steps, progress.epoch, network.parameters()
    )


train()
