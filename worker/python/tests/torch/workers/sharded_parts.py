"""A state whose members hold different tensors: sharded_parts.py KIND STEPS [EVENT...].

KIND is `zero` (DistributedDataParallel and ZeroRedundancyOptimizer), `zero-buckets` (the same with parameters in buckets, and no
DistributedDataParallel), or `pipeline` (two stages that send each other activations, FSDP inside of each).

An event is RANK@STEP, in the first round: the ranks of a step are killed at the same time, when all have sealed the commit
before. Or it is load:RANK@SIZE, in the second round: that rank kills itself before its model has its values.

Before each commit and at the start of each round, rank 0 prints a digest of the whole state, which does not depend on who
holds which part: of ZeRO the consolidated state_dict(), of the pipeline all tensors by name.
"""

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as er
from elasticrun import _native

KIND, STEPS, *EVENTS = sys.argv[1:]
IS_PIPELINE = KIND == "pipeline"
WIDTH, VOCABULARY, BATCH, LAYERS = 16, 37, 12, 4

er.init()


class Block(torch.nn.Module):
    """A layer with a buffer, and with extra state that changes in each step."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.outer = torch.nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        self.seen += 1
        return x + self.outer(torch.nn.functional.gelu(self.inner(x)))

    def get_extra_state(self):
        return self.passes

    def set_extra_state(self, state):
        self.passes = state


class Part(torch.nn.Module):
    """Some layers of the model, under the names that they have in the whole model."""

    def __init__(self, layers):
        super().__init__()
        # The same values whatever the part is.
        torch.manual_seed(5)
        whole = {str(index): Block() for index in range(LAYERS)}
        embedding, head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.layers = torch.nn.ModuleDict({str(index): whole[str(index)] for index in layers})
        self.embedding = embedding if 0 in layers else None
        self.head = head if LAYERS - 1 in layers else None
        self.register_buffer("in_all", torch.arange(3))

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def build(mesh):
    if _native.world().round == 2 and f"load:{er.rank()}@{er.size()}" in EVENTS:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    if not IS_PIPELINE:
        model = Part(range(LAYERS))
        if KIND == "zero":
            model = DistributedDataParallel(model)
        weights, biases = ([p for p in model.parameters() if (p.dim() > 1) == is_weight] for is_weight in (True, False))
        groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "lr": 0.02}]
        optimizer = ZeroRedundancyOptimizer(
            groups, torch.optim.AdamW, parameters_as_bucket_view=KIND == "zero-buckets", lr=0.01, eps=1e-3
        )
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    stage = mesh.get_local_rank("pipeline")
    half = LAYERS // 2
    model = Part(range(stage * half, (stage + 1) * half))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    # The groups of a stage and their options are its own.
    groups = [{"params": list(model.layers.parameters())}]
    if stage == 0:
        groups.append({"params": list(model.embedding.parameters()), "lr": 0.02})
    else:
        groups.append({"params": list(model.head.parameters()), "weight_decay": 0.0, "lr": 0.005})
        groups.append({"params": [], "lr": 0.1})
    optimizer = torch.optim.AdamW(groups, lr=0.01, eps=1e-3)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def hashed(value):
    if isinstance(value, DTensor):
        value = value.full_tensor()
    if isinstance(value, torch.Tensor):
        value = value.detach().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(value if isinstance(value, bytes) else repr(value).encode()).hexdigest()


def digest(state):
    """A digest of the whole state in rank 0."""
    model, optimizer, (scheduler,) = state.model, state.optimizer, state.others
    found = {name: hashed(value) for name, value in model.state_dict().items()}
    if IS_PIPELINE:
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for parameter, entry in optimizer.state.items():
            found.update({f"{names[id(parameter)]}.{key}": hashed(value) for key, value in entry.items()})
        stage = state.mesh.get_local_rank("pipeline")
        found[f"groups {stage}"] = [{**group, "params": len(group["params"])} for group in optimizer.param_groups]
        found[f"scheduler {stage}"] = scheduler.state_dict()
        members = [None] * er.size()
        dist.all_gather_object(members, found)
        whole = {}
        for member in members:
            for name, value in member.items():
                assert whole.setdefault(name, value) == value, (name, value, whole[name])
    else:
        optimizer.consolidate_state_dict(to=0)
        whole = {**found, "scheduler": scheduler.state_dict()}
        if er.rank() == 0:
            stored = optimizer.state_dict()
            whole["groups"] = stored["param_groups"]
            whole["state"] = {
                index: {key: hashed(entry[key]) for key in sorted(entry)} for index, entry in stored["state"].items()
            }
    return hashed(sorted(whole.items()))[:12]


def held(state):
    """The number of parameters whose optimizer state this worker holds, which must be its own ones."""
    local = state.optimizer if IS_PIPELINE else state.optimizer.optim
    own = {id(parameter) for group in local.param_groups for parameter in group["params"]}
    assert {id(parameter) for parameter in local.state} == own
    return len(own)


def dies(step):
    """Called where all workers have begun the step."""
    victims = [int(event.partition("@")[0]) for event in EVENTS if event.endswith(f"@{step}") and event[0].isdigit()]
    if _native.world().round == 1 and er.rank() == min(victims, default=-1):
        for rank in reversed(victims):
            os.kill(PROCESSES[rank], signal.SIGKILL)
        time.sleep(60)


def loss_of(logits, rows):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def pass_through_stages(model, rows, rank, step):
    """Forward and backward in this stage. The loss in the last one, and 0 in the first one."""
    if rank % 2 == 0:
        sent = model(rows[:, :-1])
        dist.send(sent.detach(), rank + 1)
        gradient = torch.empty_like(sent)
        dist.recv(gradient, rank + 1)
        dies(step)
        sent.backward(gradient)
        return torch.zeros(())
    received = torch.empty(len(rows), rows.shape[1] - 1, WIDTH, requires_grad=True)
    dist.recv(received.data, rank - 1)
    loss = loss_of(model(received), rows)
    loss.backward()
    dies(step)
    dist.send(received.grad, rank - 1)
    return loss.detach()


def pass_through(model, rows, step):
    loss = loss_of(model(rows[:, :-1]), rows)
    loss.backward()
    if KIND != "zero":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= er.size()
    dies(step)
    return loss.detach()


state = er.elastic.ShardedState(
    build, mesh={"data": None, "pipeline": 2} if IS_PIPELINE else ("data",), step=0, losses=[]
)


#: Process ids of the first round.
PROCESSES = []


@er.elastic.run
def train(state):
    found = digest(state)
    if er.rank() == 0:
        print(f"round of {er.size()} at step {state.step} digest {found}", flush=True)
    if _native.world().round == 1:
        PROCESSES.extend([None] * er.size())
        dist.all_gather_object(PROCESSES, os.getpid())
    if state.step:
        print(f"rank {er.rank()} of {er.size()} holds the state of {held(state)} parameters", flush=True)
    model, optimizer, (scheduler,) = state.model, state.optimizer, state.others
    while state.step < int(STEPS):
        # Each token follows from the one before it, which the model learns.
        first = torch.randint(0, VOCABULARY, (BATCH, 1), generator=torch.Generator().manual_seed(state.step))
        tokens = (first + torch.arange(6)) % VOCABULARY
        rows = tokens.chunk(state.data_size)[state.data_rank]
        optimizer.zero_grad()
        if IS_PIPELINE:
            loss = pass_through_stages(model, rows, er.rank(), state.step)
        else:
            loss = pass_through(model, rows, state.step)
        optimizer.step()
        scheduler.step()
        dist.all_reduce(loss)
        state.losses = [*state.losses, round(float(loss) / state.data_size, 5)]
        state.step += 1
        found = digest(state)
        if er.rank() == 0:
            print(f"step {state.step} digest {found}", flush=True)
        state.commit()
    rates = [group["lr"] for group in optimizer.param_groups]
    print(f"done rank {er.rank()} of {er.size()} rates {rates} losses {state.losses}", flush=True)


train(state)
