"""Trains with the Trainer of Transformers: transformers_trainer.py FOLDER EPOCHS [KILLS...]; see recording.py.

With EPOCHS 0, it trains until an epoch ends with a step of two workers.
"""

import os
import sys

import recording
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from elasticrun.transformers import ElasticCallback

folder, epochs = sys.argv[1], int(sys.argv[2])
record = recording.Record(folder, sys.argv[3:])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = recording.layers()

    def forward(self, inputs, labels, index):
        if self.training:
            record.samples += index.tolist()
        return {"loss": (self.layers(inputs) - labels).square().mean()}


class Watch(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        record.kill(state.global_step)

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop |= epochs == 0 and record.size == 2

    def on_train_begin(self, args, state, control, **kwargs):
        # Of a step that was cut short.
        record.samples.clear()

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            record.step(state.global_step, state.epoch, logs["loss"], logs["learning_rate"])


args = TrainingArguments(
    output_dir=f"{folder}/output",
    use_cpu=True,
    per_device_train_batch_size=recording.BATCH,
    num_train_epochs=epochs or 100000,
    learning_rate=0.05,
    gradient_accumulation_steps=recording.ACCUMULATE,
    logging_steps=1,
    eval_strategy="epoch" if epochs else "no",
    save_strategy="epoch" if epochs else "no",
    metric_for_best_model="loss",
    report_to="none",
    disable_tqdm=True,
    remove_unused_columns=False,
    ddp_find_unused_parameters=False,
    seed=17,
)


class RowTrainer(Trainer):
    """Its training data are a loader of the script."""

    def get_train_dataloader(self):
        return recording.loader()


data = recording.Data()
kind = RowTrainer if "ROWS" in os.environ else Trainer
callbacks = [Watch(), ElasticCallback(recording.STEPS_PER_COMMIT)]
if epochs:
    callbacks.append(EarlyStoppingCallback(early_stopping_patience=9))
trainer = kind(Network(), args, train_dataset=data, eval_dataset=data, callbacks=callbacks)
trainer.train()
state = trainer.state
assert [log["step"] for log in state.log_history if "loss" in log] == list(range(1, state.global_step + 1))
assert [log["epoch"] for log in state.log_history if "eval_loss" in log] == list(range(1, epochs + 1))
assert epochs == 0 or state.global_step == state.max_steps
recording.done(args.process_index, args.world_size, state.global_step, state.epoch, trainer.model.parameters())
