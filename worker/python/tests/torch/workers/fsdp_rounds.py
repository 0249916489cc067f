"""FSDP2 whose model and mesh are new in each round: fsdp_rounds.py MESHES SHAPE FAIL_RANK SIZE.

MESHES is own (init_device_mesh in each round) or kept (RoundMeshes). SHAPE is flat or hybrid (two replicas, if the size is even).
Rank FAIL_RANK of the first round kills itself within the forward pass of FAIL_STEP, so the other ranks fail within theirs. The job
ends some steps after the failure, in a round of SIZE workers. Each step sees one batch of the whole data, and all parameters
are compared with those of one process without shards.

Each round says how many models and groups of earlier rounds are alive, how many tensors of the last round had memory before and
after the release of its model, and whether the mesh is an object of an earlier round. After its first step, it says how many
operations DTensor's cache did not have.
"""

import gc
import os
import signal
import sys
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

import elasticrun.torch as er
from elasticrun import lifecycle
from elasticrun.torch.elastic.sharded.meshes import RoundMeshes
from elasticrun.torch.elastic.sharded.release import release

meshes, shape, fail_rank, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
FAIL_STEP, MORE_STEPS, BATCH, WIDTH = 2, 3, 12, 13

er.init()
er.init_process_group("elasticrun")
state = er.elastic.ObjectState(step=0, parameters={})
kept = RoundMeshes()
#: The models and groups of earlier rounds, and the ids of the meshes.
earlier: list[weakref.ref] = []
seen: list[object] = []
#: Model and optimizer of the last round.
last: list[tuple[torch.nn.Module, torch.optim.Optimizer]] = []


class Reference:
    """The training without shards."""

    def __init__(self):
        self.model = network()
        self.optimizer = optimizer_of(self.model)
        self.step = 0

    def compare(self, model, step):
        while self.step < step:
            update(self.model, self.optimizer, batch(self.step))
            self.step += 1
        wanted = dict(self.model.named_parameters())
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.full_tensor(), wanted[name], rtol=1e-4, atol=1e-6)


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)))


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.0)


def batch(step):
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def update(model, optimizer, inputs):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()


def mesh_of(size):
    dimensions, names = (
        ((size,), ("shard",)) if shape == "flat" or size % 2 else ((2, size // 2), ("replicate", "shard"))
    )
    if meshes == "kept":
        return kept.mesh(dimensions, names)
    return init_device_mesh("cpu", dimensions, mesh_dim_names=names)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def tensors_with_memory():
    """Tensors of the aborted round that the garbage collector finds and that have memory."""
    kinds = (torch.Tensor, torch.nn.Parameter)
    others = [*state.parameters.values(), *reference.model.parameters()]
    others += [parameter.grad for parameter in reference.model.parameters()]
    mine = {*map(id, others)}
    found = [
        one for one in gc.get_objects() if type(one) in kinds and not isinstance(one, DTensor) and id(one) not in mine
    ]
    return [one for one in found if one.dtype == torch.float32 and one.untyped_storage().nbytes() > 0]


def leave_last_round():
    """What is left of the last round: tensors with memory before and after the release, and living objects."""
    before = len(tensors_with_memory())
    released = release(*last.pop()) if last else 0
    remaining = tensors_with_memory()
    after = len(remaining)
    for one in remaining:
        holders = [type(holder).__name__ for holder in gc.get_referrers(one) if holder is not remaining]
        print(f"left over: shape {tuple(one.shape)}, made by {one.grad_fn}, held by {holders}", flush=True)
    del remaining[:]
    gc.collect()
    alive = sum(reference() is not None for reference in earlier)
    return f"alive {alive} of {len(earlier)}, tensors {before} then {after}, released {released > 0}"


def misses():
    return torch._C._get_DTensor_sharding_propagator_cache_stats()[1]


reference = Reference()


@er.elastic.run
def train(state):
    world = lifecycle.world()
    left = leave_last_round()
    mesh = mesh_of(world.size)
    same = id(mesh) in map(id, seen)
    say = f"round {world.round}: rank {world.rank} of {world.size} from step {state.step}"
    print(f"{say}: {left}, mesh {'same' if same else 'new'}", flush=True)
    if meshes == "kept":
        seen.append(mesh)
    model = network()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = optimizer_of(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in state.parameters:
                full = state.parameters[name]
                parameter.copy_(distribute_tensor(full, mesh, parameter.placements, src_data_rank=None))
    last.append((model, optimizer))
    earlier.extend(map(weakref.ref, [model, *dist.distributed_c10d._world.pg_map]))
    if world.round == 1 and world.rank == fail_rank:
        model[1].register_forward_pre_hook(lambda *_: die() if state.step == FAIL_STEP else None)
    own = slice(world.rank * BATCH // world.size, (world.rank + 1) * BATCH // world.size)
    first, missed = state.step, misses()
    while world.round == 1 or world.size != size or state.step < first + MORE_STEPS:
        update(model, optimizer, batch(state.step)[own])
        if state.step == first:
            print(f"{say}: missed {misses() - missed}", flush=True)
        state.step += 1
        reference.compare(model, state.step)
        state.parameters = {name: value.full_tensor().detach() for name, value in model.named_parameters()}
        state.commit()
    print(f"done rank {world.rank} of {world.size}", flush=True)


train(state)
