"""A script for Accelerate that knows nothing of elasticrun: accelerate_loop.py FOLDER EPOCHS KILL.

Rank 1 of the first group kills itself in the step after KILL steps.
"""

import json
import os
import signal
import sys

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import set_seed

folder, epochs, kill = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        inputs = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return inputs, inputs[:3].sin()


set_seed(17)
accelerator = Accelerator(cpu=True)
network = torch.nn.Linear(6, 3)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.05)
loader = torch.utils.data.DataLoader(Data(), batch_size=4, shuffle=True)
model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
step, newest = 0, f"{folder}/newest"
if os.path.exists(newest):
    step = json.load(open(newest))
    accelerator.load_state(f"{folder}/{step}")
print(f"begins at {step} of {epochs * len(loader)}", flush=True)
for epoch in range(step // len(loader), epochs):
    loader.set_epoch(epoch)
    for inputs, labels in skip_first_batches(loader, step % len(loader)):
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and (step, accelerator.process_index) == (kill, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        accelerator.backward((model(inputs) - labels).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 5 == 0:
            accelerator.save_state(f"{folder}/{step}")
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                json.dump(step, open(f"{newest}.new", "w"))
                os.replace(f"{newest}.new", newest)
total = sum(parameter.double().abs().sum().item() for parameter in network.parameters())
rank, size = accelerator.process_index, accelerator.num_processes
print(f"done rank {rank} of {size}: step {step} sum {total:.6f}", flush=True)
# gloo's threads may abort an interpreter that ends right behind an operation.
os._exit(0)
