"""A script for Composer that knows nothing of elasticrun: fit.py FOLDER EPOCHS KILL.

Rank 1 of the first group kills itself in the batch after KILL batches.
"""

import os
import signal
import sys

import torch
from composer import Callback, ComposerModel, Trainer
from composer.utils import dist

folder, epochs, kill = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dist.initialize_dist("cpu")


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return inputs, inputs[:3].sin()


class Network(ComposerModel):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Linear(6, 3)

    def forward(self, batch):
        return self.layers(batch[0])

    def loss(self, outputs, batch):
        return (outputs - batch[1]).square().mean()


class Kill(Callback):
    def fit_start(self, state, logger):
        print(f"begins at {state.timestamp.batch.value} of {epochs * 12}", flush=True)

    def batch_start(self, state, logger):
        first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if first and (state.timestamp.batch.value, dist.get_global_rank()) == (kill, 1):
            os.kill(os.getpid(), signal.SIGKILL)


data, network = Data(), Network()
sampler = dist.get_sampler(data, shuffle=True)
trainer = Trainer(
    model=network,
    optimizers=torch.optim.AdamW(network.parameters(), lr=0.05),
    train_dataloader=torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler),
    max_duration=f"{epochs}ep",
    device="cpu",
    seed=17,
    callbacks=[Kill()],
    run_name="run",
    save_folder=folder,
    save_interval="5ba",
    autoresume=True,
    progress_bar=False,
)
trainer.fit()
total = sum(parameter.double().abs().sum().item() for parameter in network.parameters())
rank, size = dist.get_global_rank(), dist.get_world_size()
print(f"done rank {rank} of {size}: step {trainer.state.timestamp.batch.value} sum {total:.6f}", flush=True)
# gloo's threads may abort an interpreter that ends right behind an operation.
os._exit(0)
