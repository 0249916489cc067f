"""Models that build() makes on the meta device get memory, and FSDP copies nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from elasticrun.torch.elastic.sharded.building import leave_meta

#: Rows that three workers divide into 3, 3 and 1, and 2, 1 and 0.
ROWS, FEW = 7, 3
WORLD = 3


@pytest.fixture(params=range(WORLD))
def rank(request: pytest.FixtureRequest) -> Iterator[int]:
    """A rank of a process group without other processes, whose collectives do nothing."""
    dist.init_process_group("fake", rank=request.param, world_size=WORLD, store=FakeStore())
    yield request.param
    dist.destroy_process_group()


def model_of(device: str) -> torch.nn.Module:
    with torch.device(device):
        model = torch.nn.Sequential(torch.nn.Linear(4, ROWS), torch.nn.Linear(ROWS, FEW, bias=False))
    mesh = init_device_mesh("cpu", (WORLD,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def test_a_model_that_leaves_the_meta_device_is_as_one_that_was_never_there(rank: int) -> None:
    model, other = model_of("meta"), model_of("cpu")
    assert leave_meta(model, "cpu")
    assert not leave_meta(model, "cpu")
    for parameter, wanted in zip(model.parameters(), other.parameters(), strict=True):
        assert isinstance(parameter, DTensor) and isinstance(wanted, DTensor)
        assert parameter.placements == wanted.placements and parameter.shape == wanted.shape
        assert parameter.to_local().shape == wanted.to_local().shape and parameter.requires_grad
        assert parameter.to_local().is_contiguous()
        with torch.no_grad():
            parameter.fill_(2)
    # FSDP gathers what parameters have, and padding without values.
    for layer in model:
        (group,) = layer._get_fsdp_state()._fsdp_param_groups
        for one in group.fsdp_params:
            padded, local = one._sharded_param_data, one.sharded_param.to_local()
            assert padded.numel() == one.padded_sharded_param_size.numel()
            assert padded[: local.numel()].eq(2).all() and padded[local.numel() :].eq(0).all()
    # Values may be loaded, and the model can train.
    weight = model[0].weight.to_local()
    wanted = torch.arange(ROWS * 4.0).view(ROWS, 4).chunk(WORLD)[rank]
    weight.detach().copy_(wanted)
    model(torch.ones(2, 4)).sum().backward()
    assert model[0].weight.grad is not None and model[0].weight.to_local().equal(wanted)


def test_no_shard_is_copied(rank: int) -> None:
    model = model_of("meta")
    with torch.profiler.profile() as profile:
        leave_meta(model, "cpu")
    names = {event.name for event in profile.events()}
    assert "aten::empty_like" in names and "aten::copy_" not in names
