"""A model with a sharded state: sharded.py KIND END CHECKPOINTS [EVENT...].

KIND is `fsdp` (all workers), `hsdp` (pairs of workers that hold the model), `hsdp4` (groups of four), or `tensor` (pairs of tensor
parallel workers, and FSDP beside).

END is a number of steps, or the sizes that rounds must have had: 4,3,4 ends three steps after the last change.

Before each commit torch.distributed.checkpoint saves model and optimizer to CHECKPOINTS/STEP. At the start of each later
round, a fresh model and optimizer of the round's size load the checkpoint of the base, and all local tensors are compared
with those of the state, bit by bit. Set CHECKPOINTS to "none" to do without.

An event is WHEN:RANK@STEP, in the first round only: that rank kills itself in that step. WHEN is `forward`, `commit` (before the
barrier of the commit), `sealed` (after it has sealed the commit), or `all` (all ranks but the given one, in the forward pass).
The word `behind` makes commits asynchronous. An event may also be WHEN:RANK@SIZE, in a later round of that size, with `loading` (before the model has its values) or `first` (when it has
them, and before commit 0 of the round).
"""

import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import elasticrun.torch as er
from elasticrun import _native
from elasticrun.torch.elastic.sharded.writing import Writing

KIND, END, CHECKPOINTS, *EVENTS = sys.argv[1:]
#: Whether training goes on while a commit is copied. Then commits are as late as they can be.
BEHIND = "behind" in EVENTS
if BEHIND:
    Writing.is_copied = lambda writing: False
SIZES = [int(size) for size in END.split(",")]
MESHES = {
    "fsdp": ("shard",),
    "hsdp": {"replicate": None, "shard": 2},
    "hsdp4": {"replicate": None, "shard": 4},
    "tensor": {"data": None, "tensor": 2},
}
WIDTH, VOCABULARY, BATCH = 16, 37, 12
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

er.init()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.outer = torch.nn.Linear(3 * WIDTH, WIDTH)
        # Fewer elements than workers: some shards are empty.
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.inner(self.norm(x)))
        return x + self.outer(hidden) * self.scale.mean()


class Gain(torch.nn.Module):
    """A parameter of another type, and so a group of its own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, WIDTH, dtype=torch.bfloat16))

    def forward(self, x):
        return x * self.weight.float()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight  # tied
        self.gain = Gain()
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.gain(x))


def build(mesh):
    dies("loading", mesh.size())
    torch.manual_seed(5)
    model = Model()
    if KIND == "tensor":
        for block in model.blocks:
            parallelize_module(block, mesh["tensor"], {"inner": ColwiseParallel(), "outer": RowwiseParallel()})
        mesh = mesh["data"]
    for part in (*model.blocks, model.gain):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # With the usual epsilon, the rounding of a gradient near zero would change a parameter by a whole step.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bytes_of(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8)


def parts(model, optimizer):
    """Local tensors by name."""
    found = {name: local(value) for name, value in model.state_dict().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, entry in optimizer.state.items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                found[f"{names[id(parameter)]}.{key}"] = local(value)
    return found


def save_checkpoint(state):
    model, optimizer = get_state_dict(state.model, state.optimizer)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=f"{CHECKPOINTS}/{state.step}")


def compare_with_checkpoint(state):
    """A fresh model of this size loads what torch has saved, and is compared bit by bit."""
    model, optimizer, _ = build(state.mesh)
    stored, stored_optimizer = get_state_dict(model, optimizer)
    parts_of = {"model": stored, "optimizer": stored_optimizer}
    dcp.load(parts_of, checkpoint_id=f"{CHECKPOINTS}/{state.step}")
    set_state_dict(model, optimizer, model_state_dict=parts_of["model"], optim_state_dict=parts_of["optimizer"])
    expected, actual = parts(model, optimizer), parts(state.model, state.optimizer)
    assert expected.keys() == actual.keys(), expected.keys() ^ actual.keys()
    for name, value in expected.items():
        assert value.dtype == actual[name].dtype, name
        assert torch.equal(bytes_of(value), bytes_of(actual[name])), name
    empty = sum(value.numel() == 0 for value in actual.values())
    print(
        f"rank {er.rank()} of {er.size()} equals checkpoint {state.step}: {len(actual)} tensors, {empty} empty",
        flush=True,
    )


def digest(state):
    """A digest of the whole state, which is the same whatever its shards are."""
    hashed = hashlib.sha256()
    values = [*state.model.state_dict().values()]
    for parameter in state.model.parameters():
        values += state.optimizer.state[parameter].values()
    for value in values:
        full = value.full_tensor() if isinstance(value, DTensor) else value
        hashed.update(bytes_of(full).cpu().numpy().tobytes())
    return hashed.hexdigest()[:12]


def first_round():
    return _native.world().round == 1


def dies(when, now):
    for event in EVENTS:
        kind, _, place = event.partition(":")
        rank, _, at = place.partition("@")
        if kind != when or int(at) != now or first_round() == (kind in ("loading", "first")):
            continue
        if (er.rank() == int(rank)) != (kind == "all"):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)


def is_done(state):
    if len(SIZES) == 1:
        return state.step >= SIZES[0]
    # New workers may come one after the other, so there may be other sizes between them.
    sizes = iter(size for size, _ in state.sizes)
    has_had_all = all(size in sizes for size in SIZES)
    return has_had_all and state.sizes[-1][0] == SIZES[-1] and state.step >= state.sizes[-1][1] + 3


#: Small enough for two micro-batches of a worker.
batch = er.elastic.GlobalBatch(BATCH, micro=2)
state = er.elastic.ShardedState(build, mesh=MESHES[KIND], device=DEVICE, step=0, losses=[], sizes=[])
if any(event.startswith("first") for event in EVENTS):
    state.register_reset_callbacks([lambda: dies("first", er.size())])


@er.elastic.run
def train(state):
    print(f"round of {er.size()}: rank {er.rank()} at step {state.step} digest {digest(state)}", flush=True)
    print(f"back end {dist.get_backend()}", flush=True)
    world = _native.world()
    print(
        f"pid {os.getpid()} in round {world.round}: group {world.group} shard {world.shard} at {state.mesh.get_coordinate()}",
        flush=True,
    )
    if state.step and CHECKPOINTS != "none":
        compare_with_checkpoint(state)
    state.sizes = [*state.sizes, (er.size(), state.step)]
    model, optimizer, (scheduler,) = state.model, state.optimizer, state.others
    while not is_done(state):
        tokens = torch.randint(0, VOCABULARY, (BATCH, 6), generator=torch.Generator().manual_seed(state.step)).to(
            DEVICE
        )
        optimizer.zero_grad()
        total = torch.zeros((), device=DEVICE)
        for micro in batch.micro_batches():
            own = tokens[micro.rows.start : micro.rows.stop]
            with micro.accumulate(model):
                logits = model(own[:, :-1])
                dies("forward", state.step)
                dies("all", state.step)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), own[:, 1:].flatten()) * micro.weight
                loss.backward()
            total += loss.detach()
        if KIND != "tensor":
            # torch computes no norm of tensors on different meshes.
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        model.seen += 1
        dist.all_reduce(total)
        state.losses = [*state.losses, round(float(total) / er.size(), 5)]
        state.step += 1
        if CHECKPOINTS != "none":
            save_checkpoint(state)
        found = digest(state)
        if er.rank() == 0:
            print(f"step {state.step} digest {found}", flush=True)
        dies("commit", state.step)
        state.commit(async_=BEHIND)
        dies("sealed", state.step)
    rate, found = scheduler.get_last_lr()[0], digest(state)
    print(
        f"done rank {er.rank()} of {er.size()} step {state.step} rate {rate} digest {found} losses {state.losses}",
        flush=True,
    )


train(state)
