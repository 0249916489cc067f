"""A script for the Trainer that knows nothing of elasticrun: transformers_trainer.py FOLDER EPOCHS KILL.

Rank 1 of the first group kills itself in the step after KILL steps.
"""

import os
import signal
import sys

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

folder, epochs, kill = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return {"inputs": inputs, "labels": inputs[:3].sin()}


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Linear(6, 3)

    def forward(self, inputs, labels):
        return {"loss": (self.layers(inputs) - labels).square().mean()}


class Kill(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and (state.global_step, args.process_index) == (kill, 1):
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_begin(self, args, state, control, **kwargs):
        print(f"begins at {state.global_step} of {state.max_steps}", flush=True)


args = TrainingArguments(
    output_dir=folder,
    use_cpu=True,
    per_device_train_batch_size=4,
    num_train_epochs=epochs,
    save_strategy="steps",
    save_steps=5,
    report_to="none",
    disable_tqdm=True,
    remove_unused_columns=False,
    ddp_find_unused_parameters=False,
    seed=17,
)
torch.manual_seed(5)
trainer = Trainer(Network(), args, train_dataset=Data(), callbacks=[Kill()])
last = get_last_checkpoint(folder) if os.path.isdir(folder) else None
trainer.train(resume_from_checkpoint=last)
total = sum(parameter.double().abs().sum().item() for parameter in trainer.model.parameters())
print(
    f"done rank {args.process_index} of {args.world_size}: step {trainer.state.global_step} sum {total:.6f}", flush=True
)
# gloo's threads may abort an interpreter that ends right behind an operation.
os._exit(0)
