"""A script for Lightning that knows nothing of elasticrun: lightning_fit.py FOLDER EPOCHS KILL.

Rank 1 of the first group kills itself in the step after KILL steps.
"""

import os
import signal
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

folder, epochs, kill = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lightning.seed_everything(17)


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return inputs, inputs[:3].sin()


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Linear(6, 3)

    def on_train_start(self):
        print(f"begins at {self.global_step} of {self.trainer.estimated_stepping_batches}", flush=True)

    def training_step(self, batch, batch_idx):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and (self.global_step, self.global_rank) == (kill, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, labels = batch
        return (self.layers(inputs) - labels).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05)


network = Network()
loader = torch.utils.data.DataLoader(Data(), batch_size=4, shuffle=True)
trainer = lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    devices=2,
    max_epochs=epochs,
    callbacks=[ModelCheckpoint(folder, save_last=True, every_n_epochs=1)],
    enable_progress_bar=False,
    enable_model_summary=False,
    logger=False,
)
last = f"{folder}/last.ckpt"
trainer.fit(network, loader, ckpt_path=last if os.path.exists(last) else None)
total = sum(parameter.double().abs().sum().item() for parameter in network.parameters())
print(
    f"done rank {trainer.global_rank} of {trainer.world_size}: step {trainer.global_step} sum {total:.6f}", flush=True
)
# gloo's threads may abort an interpreter that ends right behind an operation.
os._exit(0)
