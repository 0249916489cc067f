"""Trains a tiny model with the Trainer: transformers_trainer.py FOLDER EPOCHS [KILLS...].

A KILL is EPOCH:STEP:RANK: that rank ends itself in that step of that epoch, before the step is committed, once. Each worker
appends the samples of each step to FOLDER/samples.PID, and rank 0 the losses to FOLDER/losses.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from elasticrun.transformers import ElasticCallback

folder, epochs, kills = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
SAMPLES, BATCH = int(os.environ.get("SAMPLES", "96")), 4


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return {"inputs": inputs, "labels": inputs[:3].sin(), "index": index}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
        )

    def forward(self, inputs, labels, index):
        Watch.indices = index.tolist()
        return {"loss": (self.layers(inputs) - labels).square().mean()}


class Watch(TrainerCallback):
    """Records samples and losses, and kills the process."""

    indices: list = []

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        epoch = int(state.epoch)
        for kill in kills:
            at_epoch, at_step, rank = map(int, kill.split(":"))
            if (epoch, state.global_step, args.process_index) == (at_epoch, at_step, rank):
                mark = folder / f"killed.{kill}"
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

    def on_step_end(self, args, state, control, **kwargs):
        with open(folder / f"samples.{os.getpid()}", "a") as file:
            print(state.global_step, args.process_index, args.world_size, *self.indices, file=file)

    def on_log(self, args, state, control, logs, **kwargs):
        if args.process_index == 0 and "loss" in logs:
            with open(folder / "losses", "a") as file:
                print(state.global_step, f"{state.epoch:.6f}", f"{logs['loss']:.8f}", f"{logs['learning_rate']:.10f}", file=file)


args = TrainingArguments(
    output_dir=str(folder / "output"),
    use_cpu=True,
    per_device_train_batch_size=BATCH,
    num_train_epochs=epochs,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    learning_rate=0.05,
    remove_unused_columns=False,
    seed=17,
)
torch.manual_seed(5)
trainer = Trainer(Network(), args, train_dataset=Data(), callbacks=[Watch(), ElasticCallback()])
output = trainer.train()
total = sum(parameter.double().abs().sum().item() for parameter in trainer.model.parameters())
print(
    f"done rank {args.process_index} of {args.world_size}: step {output.global_step} of {trainer.state.max_steps}"
    f" epoch {trainer.state.epoch} loss {output.training_loss:.8f} sum {total:.9f}",
    flush=True,
)
