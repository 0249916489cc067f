"""What is kept of a round, and what is not: on torch's fake back end, without a job."""

from __future__ import annotations

import pytest

#: Rank 1 of 4 of a fake group: collectives return at once. ``groups()`` makes those of another round.
FAKE = """
import copy, gc, sys, types, weakref
import torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from elasticrun.torch import dtensor_caches
from elasticrun.torch.elastic.sharded.release import release

NAMES = ("replicate", "shard")

def groups(rank=1):
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)

def mesh():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=NAMES)

def add(mesh):
    one = DTensor.from_local(torch.zeros(2), mesh, [Shard(0)] * mesh.ndim, run_check=False)
    return one + one

def misses():
    return torch._C._get_DTensor_sharding_propagator_cache_stats()[1]

def next_round():
    groups()
    dtensor_caches.end_round()

groups()
earlier = [init_device_mesh("cpu", (4,))]
dtensor_caches.watch()
"""


def test_the_end_of_a_round_imports_nothing(start) -> None:
    text = start.alone("""
        import sys
        import elasticrun.torch
        from elasticrun.torch import dtensor_caches
        before = {*sys.modules}
        dtensor_caches.end_round()
        print("IMPORTED", {*sys.modules} - before, "torch.distributed.tensor" in sys.modules)
    """)
    assert "IMPORTED set() False" in text


def test_an_equal_mesh_gets_its_own_results(start) -> None:
    text = start.alone(
        FAKE
        + """
first = mesh()
add(first)
group = weakref.ref(first.get_group("shard"))
del first
next_round()
gc.collect()
print("GROUP", group())
second = mesh()
print("OWN", add(second).device_mesh is second)
"""
    )
    assert "GROUP None" in text
    assert "OWN True" in text


def test_a_registered_mesh_and_its_slices_get_the_groups_of_the_round(start) -> None:
    text = start.alone(
        FAKE
        + """
earlier.clear()
kept = mesh()
dtensor_caches.keep(kept)
part = kept["shard"]
add(kept), add(part)
group = weakref.ref(kept.get_group("shard"))
dist.new_group([0, 1])
next_round()
gc.collect()
print("GROUP", group())
try:
    kept.get_group("shard")
except RuntimeError as error:
    print("BETWEEN", error)
# The names of groups count up, so now they are others.
dist.new_group([0, 1])
new = mesh()
print("REVIVED", dtensor_caches.revive(kept, new))
print("GROUPS", all(one.get_group("shard") is new.get_group("shard") for one in (kept, part)))
before = misses()
print("OWN", add(new).device_mesh is kept, add(kept["shard"]).device_mesh is part, "MISSES", misses() - before)
"""
    )
    assert "GROUP None" in text
    assert "BETWEEN DeviceMesh process groups not initialized!" in text
    assert "REVIVED True" in text
    assert "GROUPS True" in text
    assert "OWN True True MISSES 0" in text


@pytest.mark.parametrize(
    ("other", "missed"),
    [
        ("kept", 0),
        ("earlier[0]", 1),
        ("init_device_mesh('cpu', (4,), mesh_dim_names=('mine',))", 1),
        ("kept._flatten('all')", 1),
        ("copy.deepcopy(kept)", 1),
    ],
    ids=["registered", "earlier", "unregistered", "flattened", "copied"],
)
def test_a_mesh_without_an_owner_clears_the_cache(start, other: str, missed: int) -> None:
    text = start.alone(
        FAKE
        + f"""
kept = mesh()
dtensor_caches.keep(kept)
other = {other}
if {other!r} != "earlier[0]":
    earlier.clear()
add(kept), add(other)
next_round()
dtensor_caches.revive(kept, mesh())
before = misses()
add(kept)
print("MISSES", misses() - before)
"""
    )
    assert f"MISSES {missed}" in text


def test_a_release_of_torch_with_other_private_parts(start) -> None:
    """Without any of the caches, and with a mesh that resolves its groups by itself."""
    text = start.alone(
        FAKE
        + """
kept = mesh()
dtensor_caches.keep(kept)
for name in ("_redistribute", "_collective_utils", "_random"):
    sys.modules["torch.distributed.tensor." + name] = types.ModuleType(name)
sys.modules["torch.distributed.device_mesh"]._mesh_resources = object()
real, DTensor._op_dispatcher = DTensor._op_dispatcher, object()
next_round()
DTensor._op_dispatcher = real
DeviceMesh.get_group = lambda self, axis: self
print("REVIVED", dtensor_caches.revive(kept, mesh()))
"""
    )
    assert "REVIVED False" in text


def test_a_group_keeps_an_error_without_its_traceback(start) -> None:
    text = start.alone("""
        import gc, weakref
        from elasticrun.errors import CollectiveMismatch
        from elasticrun.torch.group import Group

        class Odd(RuntimeError):
            def __init__(self, name, place):
                super().__init__(f"{name} at {place}")

        class Model:
            pass

        def fail(group, error):
            model = Model()
            try:
                raise error
            except RuntimeError as raised:
                group._failed(raised)
            return weakref.ref(model)

        for make in (lambda: CollectiveMismatch("rank 1"), lambda: RuntimeError("gloo"), lambda: Odd("x", 3)):
            group = Group(0, 1, None)
            assert group.error is None
            model = fail(group, make())
            gc.collect()
            assert model() is None
            try:
                raise group.error
            except RuntimeError:
                pass
            assert group.error.__traceback__ is None
            print("KEPT", repr(group.error))
            group._failed(KeyError())
            assert isinstance(group.error, RuntimeError)
    """)
    for kept in ("CollectiveMismatch('rank 1')", "RuntimeError('gloo')", "RuntimeError('x at 3')"):
        assert f"KEPT {kept}" in text


def test_release_frees_a_model_in_the_middle_of_a_step(start) -> None:
    text = start.alone(
        FAKE
        + """
def storages(tensors):
    return [getattr(tensor, "_local_tensor", tensor).untyped_storage() for tensor in tensors]

def nbytes(storages):
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

def stop(*_):
    raise KeyError("an abort")

model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(2)))
model.register_buffer("table", torch.ones(8))
for layer in (*model, model):
    fully_shard(layer, mesh=mesh())
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 8)).sum().backward()
optimizer.step()
parameters = list(model.parameters())
held = storages([*parameters, *(parameter.grad for parameter in parameters)])
held += storages(value for entry in optimizer.state.values() for value in entry.values())
model[0].register_forward_hook(stop, prepend=True)
try:
    model(torch.ones(2, 8))
except KeyError:
    held += storages([model[0].weight])
print("GATHERED", held[-1].nbytes())
before = nbytes(held)
first = release(model)
# While the first layer is gathered, only FSDP refers to its shards.
print("SHARDS", nbytes(storages(parameters)))
print("RELEASED", first + release(model, optimizer) >= before > 0)
print("LEFT", nbytes(held), len(optimizer.state), [parameter.grad for parameter in parameters])
print("TABLE", model.table.sum().item())
print("AGAIN", release(model, optimizer))
"""
    )
    assert "GATHERED 256" in text
    assert "SHARDS 0" in text
    assert "RELEASED True" in text
    assert "LEFT 0 0 [None, None, None, None]" in text
    assert "TABLE 8.0" in text
    assert "AGAIN 0" in text


def test_release_leaves_memory_that_is_not_torchs(start) -> None:
    text = start.alone(
        FAKE
        + """
import numpy as np
array = np.ones(4)
model = torch.nn.Module()
model.mine, model.meta = (torch.nn.Parameter(one) for one in (torch.from_numpy(array), torch.ones(3, device="meta")))
print("RELEASED", release(model), model.mine.sum().item(), model.meta.shape)
"""
    )
    assert "RELEASED 0 4.0 torch.Size([3])" in text
