"""TorchState: what is committed, what is rolled back, what is refused."""

import copy

import elasticrun.torch as hvd
import pytest
import torch
from elasticrun.errors import StateError


def trained(model, optimizer, factor=1.0):
    optimizer.zero_grad()
    (model(torch.full((2, 4), factor)).square().sum()).backward()
    optimizer.step()


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)
    )
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def snapshot(model, optimizer):
    return copy.deepcopy((model.state_dict(), optimizer.state_dict()))


def same(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two


def check_rolled_back_in_place(rank, size):
    model, optimizer = make()
    trained(model, optimizer)
    state = hvd.elastic.TorchState(model, optimizer, step=3, history=[1], extra=torch.ones(2))
    before = snapshot(model, optimizer)
    parameters = [parameter.data_ptr() for parameter in model.parameters()]
    moments = [entry["exp_avg"].data_ptr() for entry in optimizer.state.values()]
    state.commit()
    trained(model, optimizer, 2.0)
    state.step, state.extra[0] = 9, 7
    state.history.append(2)
    optimizer.param_groups[0]["lr"] = 5.0
    state.restore()
    assert same(snapshot(model, optimizer), before)
    assert (state.step, state.history, state.extra.tolist()) == (3, [1], [1, 1])
    # Who holds the tensors (DistributedDataParallel, say) sees the restored values.
    assert parameters == [parameter.data_ptr() for parameter in model.parameters()]
    assert moments == [entry["exp_avg"].data_ptr() for entry in optimizer.state.values()]
    assert state.model is model and state.optimizer is optimizer


def check_state_of_an_optimizer_that_has_made_no_step(rank, size):
    model, optimizer = make()
    state = hvd.elastic.TorchState(model, optimizer)
    state.commit()
    trained(model, optimizer)
    state.restore()
    assert not optimizer.state
    trained(model, optimizer)
    state.commit()
    fresh_model, fresh = make()
    state.model, state.optimizer = fresh_model, fresh
    state.restore()
    assert same(snapshot(fresh_model, fresh), snapshot(model, optimizer))
    # Its tensors are its own: a step here changes nothing there.
    before = snapshot(model, optimizer)
    trained(fresh_model, fresh, 3.0)
    assert same(snapshot(model, optimizer), before)


def check_nothing_looks_at_the_memory_that_was_restored_from(rank, size):
    model, optimizer = make()
    trained(model, optimizer)
    extra = torch.arange(6.0).reshape(2, 3)
    state = hvd.elastic.TorchState(model, optimizer, extra=extra)
    state.commit()
    state.restore()
    held = snapshot(model, optimizer), state.extra.clone()
    # The memory of the commits is written again and again.
    copies = [tensor for tensor in model.state_dict().values()]
    for _ in range(4):
        state.extra = torch.randn(2, 3)
        trained(model, optimizer, 5.0)
        state.commit()
    assert [tensor.data_ptr() for tensor in copies] == [
        tensor.data_ptr() for tensor in model.state_dict().values()
    ]
    assert torch.equal(held[1], extra)


def check_layouts_and_types(rank, size):
    tensors = {
        "last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "transposed": torch.randn(3, 4).t(),
        "half": torch.randn(3).to(torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "complex": torch.randn(2, dtype=torch.complex64),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.5),
        "sparse": torch.eye(3).to_sparse(),
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "frozen": torch.nn.Parameter(torch.randn(2), requires_grad=False),
        "leaf": torch.randn(2, requires_grad=True),
    }
    state = hvd.elastic.TorchState(nested={"list": [dict(tensors)]})
    state.commit()
    state.nested = None
    state.restore()
    for name, tensor in state.nested["list"][0].items():
        wanted = tensors[name]
        assert type(tensor) is type(wanted), name
        assert tensor.dtype == wanted.dtype and tensor.requires_grad == wanted.requires_grad, name
        assert torch.equal(tensor.to_dense(), wanted.to_dense()), name
        assert tensor is not wanted
    last = state.nested["list"][0]["last"]
    assert last.is_contiguous(memory_format=torch.channels_last)


def check_sync_brings_what_rank_0_has(rank, size):
    torch.manual_seed(rank)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
    trained_here = torch.full((1, 2), float(rank))
    model(trained_here).sum().backward()
    optimizer.step()
    state = hvd.elastic.TorchState(model, optimizer, where=torch.full((2,), float(rank)))
    state.sync()
    assert state.where.tolist() == [0.0, 0.0]
    states = hvd.allgather_object(snapshot(model, optimizer))
    assert all(same(states[0], other) for other in states)


def check_two_models(rank, size):
    generator, discriminator = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    state = hvd.elastic.TorchState(generator=generator, discriminator=discriminator, step=0)
    before = generator.weight.detach().clone()
    state.commit()
    with torch.no_grad():
        generator.weight.add_(1)
    state.restore()
    assert torch.equal(generator.weight, before)


def check_what_cannot_be_a_state(rank, size):
    with pytest.raises(StateError, match=r"lock.*cannot be serialised"):
        import threading

        hvd.elastic.TorchState(lock=threading.Lock())
    with pytest.raises(StateError, match="cannot be called 'commit'"):
        hvd.elastic.TorchState(commit=1)
    model, optimizer = make()
    state = hvd.elastic.TorchState(model, optimizer)
    state.commit()
    state.model = torch.nn.Linear(4, 3)
    with pytest.raises(StateError, match="does not fit the model"):
        state.restore()


def check_shards_are_refused(rank, size):
    from torch.distributed.fsdp import fully_shard

    hvd.init_process_group("elasticrun")
    mesh = torch.distributed.init_device_mesh("cpu", (size,))
    layer = torch.nn.Linear(4, 4)
    fully_shard(layer, mesh=mesh)
    with pytest.raises(StateError, match=r"\['weight'\] is a DTensor"):
        hvd.elastic.TorchState(layer)
    from torch.distributed.optim import ZeroRedundancyOptimizer

    plain = torch.nn.Linear(4, 4)
    sharded = ZeroRedundancyOptimizer(plain.parameters(), torch.optim.SGD, lr=0.1)
    with pytest.raises(StateError, match="ZeroRedundancyOptimizer"):
        hvd.elastic.TorchState(plain, sharded)
