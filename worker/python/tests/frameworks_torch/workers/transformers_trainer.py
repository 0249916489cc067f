"""Trains with the Trainer of Transformers: transformers_trainer.py FOLDER EPOCHS [KILLS...]; see recording.py.

With EPOCHS 0, it trains until an epoch ends with two workers.
"""

import sys

import recording
import torch

import elasticrun
from transformers import Trainer, TrainerCallback, TrainingArguments

from elasticrun.transformers import ElasticCallback

folder, epochs = sys.argv[1], int(sys.argv[2])
record = recording.Record(folder, sys.argv[3:])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = recording.layers()

    def forward(self, inputs, labels, index):
        Watch.indices = index.tolist()
        return {"loss": (self.layers(inputs) - labels).square().mean()}


class Watch(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        record.kill(state.global_step)

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop |= epochs == 0 and elasticrun.size() == 2

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            record.step(state.global_step, state.epoch, logs["loss"], logs["learning_rate"], self.indices)


args = TrainingArguments(
    output_dir=f"{folder}/output",
    use_cpu=True,
    per_device_train_batch_size=recording.BATCH,
    num_train_epochs=epochs or 100000,
    learning_rate=0.05,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    remove_unused_columns=False,
    ddp_find_unused_parameters=False,
    seed=17,
)
trainer = Trainer(Network(), args, train_dataset=recording.Data(), callbacks=[Watch(), ElasticCallback()])
trainer.train()
state = trainer.state
assert state.global_step == len(state.log_history) - 1
assert epochs == 0 or state.global_step == state.max_steps
recording.done(args.process_index, args.world_size, state.global_step, state.epoch, trainer.model.parameters())
