"""torch.distributed over the back end of the job, against what one process computes."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def ours():
    return dist.get_backend() == "elasticrun"


def check_group(rank, size):
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    assert dist.get_backend() in ("elasticrun", "gloo")


def check_all_reduce(rank, size):
    for op, expected in [
        (dist.ReduceOp.SUM, size * (size + 1) / 2),
        (dist.ReduceOp.MAX, size),
        (dist.ReduceOp.MIN, 1),
    ]:
        tensor = torch.full((3,), float(rank + 1))
        dist.all_reduce(tensor, op)
        assert tensor.tolist() == [expected] * 3
    if ours():
        tensor = torch.full((3,), float(rank + 1))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        assert tensor.tolist() == [(size + 1) / 2] * 3
        with pytest.raises(NotImplementedError, match="no reduction"):
            dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR)


def check_work(rank, size):
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed()
    assert tensor[0] == size
    work = dist.all_reduce(tensor, async_op=True)
    value = work.get_future().then(lambda future: future.value()[0] + 1).wait()
    assert value[0] == size * size + 1


def check_coalesced(rank, size):
    tensors = [torch.full((index + 1,), float(rank)) for index in range(3)]
    dist.all_reduce_coalesced(tensors)
    assert all(tensor[0] == sum(range(size)) for tensor in tensors)


def check_broadcast_and_objects(rank, size):
    tensor = torch.full((2, 2), float(rank)).t()
    dist.broadcast(tensor, 1)
    assert (tensor == 1).all()
    objects = [{"rank": rank}]
    dist.broadcast_object_list(objects, 1)
    assert objects == [{"rank": 1}]
    gathered = [None] * size
    dist.all_gather_object(gathered, "x" * rank)
    assert gathered == ["x" * other for other in range(size)]


def check_all_gather(rank, size):
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_gather(outputs, torch.full((2,), float(rank)))
    assert [output[0].item() for output in outputs] == list(range(size))
    flat = torch.empty(size * 2)
    dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)))
    assert flat[::2].tolist() == list(range(size))


def check_reduce_scatter(rank, size):
    output = torch.empty(2)
    dist.reduce_scatter(output, [torch.full((2,), float(other)) for other in range(size)])
    assert output.tolist() == [float(rank * size)] * 2
    dist.reduce_scatter_tensor(output, torch.arange(size * 2.0))
    assert output.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]


def check_reduce_gather_scatter(rank, size):
    tensor = torch.full((2,), float(rank))
    dist.reduce(tensor, 1)
    if rank == 1:
        assert tensor[0] == sum(range(size))
    gathered = [torch.zeros(2) for _ in range(size)] if rank == 1 else None
    dist.gather(torch.full((2,), float(rank)), gathered, dst=1)
    if rank == 1:
        assert [one[0].item() for one in gathered] == list(range(size))
    output = torch.zeros(2)
    shares = [torch.full((2,), float(other)) for other in range(size)] if rank == 0 else None
    dist.scatter(output, shares, src=0)
    assert output[0] == rank


def check_all_to_all(rank, size):
    output = torch.zeros(size)
    dist.all_to_all_single(output, torch.arange(float(size)) + 10 * rank)
    assert output.tolist() == [10.0 * other + rank for other in range(size)]
    splits = [rank + 1] * size
    received = torch.zeros(sum(other + 1 for other in range(size)), 2)
    dist.all_to_all_single(
        received,
        torch.full((size * (rank + 1), 2), float(rank)),
        [other + 1 for other in range(size)],
        splits,
    )
    assert received[:, 1].tolist() == [float(r) for r in range(size) for _ in range(r + 1)]
    if ours():
        outputs = [torch.zeros(1) for _ in range(size)]
        dist.all_to_all(outputs, [torch.tensor([float(other)]) for other in range(size)])
        assert [one.item() for one in outputs] == [float(rank)] * size


def check_barrier(rank, size):
    dist.barrier()


def check_bad_input_is_named(rank, size):
    if not ours():
        return
    with pytest.raises(ValueError, match="the tensor for rank 1 is"):
        outputs = [torch.zeros(2 + (other == 1)) for other in range(size)]
        dist.all_gather(outputs, torch.zeros(2))
    with pytest.raises(NotImplementedError, match="name the source"):
        dist.recv(torch.ones(1))
    with pytest.raises(ValueError, match="this rank itself"):
        dist.isend(torch.ones(1), rank)
    with pytest.raises(NotImplementedError, match="sparse"):
        dist.isend(torch.ones(1).to_sparse(), (rank + 1) % size)
    with pytest.raises(TypeError, match="complex"):
        dist.group.WORLD.allreduce([torch.ones(1, dtype=torch.complex64)]).wait()


def trained(rank, size, wrap):
    """Parameters after three steps, of this rank's share of each batch or of the whole."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(10, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10)
    )
    model = wrap(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    whole = model is layers
    for _ in range(3):
        inputs = torch.randn(size * 4, 10, generator=generator)
        labels = torch.randint(0, 10, (size * 4,), generator=generator)
        mine = slice(None) if whole else slice(rank * 4, (rank + 1) * 4)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[mine]), labels[mine]).backward()
        optimizer.step()
    return torch.cat([parameter.detach().reshape(-1) for parameter in layers.parameters()])


def check_ddp(rank, size):
    alone = trained(rank, size, lambda layers: layers)
    for options in [
        {},
        {"bucket_cap_mb": 0.001},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ]:
        together = trained(
            rank, size, lambda layers, o=options: DistributedDataParallel(layers, **o)
        )
        assert torch.allclose(together, alone, atol=1e-6), options
    gathered = [torch.empty_like(together) for _ in range(size)]
    dist.all_gather(gathered, together)
    assert all(torch.equal(one, together) for one in gathered)


def check_ddp_with_unused_parameters(rank, size):
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
    model = DistributedDataParallel(Chooser(layers), find_unused_parameters=True)
    for _ in range(2):
        model(torch.ones(1, 4), min(rank, 1)).sum().backward()
    assert layers[0].weight.grad is not None and layers[1].weight.grad is not None


class Chooser(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, inputs, which):
        return self.layers[which](inputs)


def check_ddp_comm_hook(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def wrap(layers):
        model = DistributedDataParallel(layers)
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return model

    alone = trained(rank, size, lambda layers: layers)
    assert torch.allclose(trained(rank, size, wrap), alone, atol=1e-2)


def check_fsdp(rank, size):
    from torch.distributed.fsdp import fully_shard

    def wrap(layers):
        return fully_shard(layers)

    if not ours():
        return
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    alone = copy.deepcopy(layers)
    mesh = dist.init_device_mesh("cpu", (size,))
    fully_shard(layers, mesh=mesh)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    other = torch.optim.SGD(alone.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        inputs = torch.randn(size * 4, 10, generator=generator)
        optimizer.zero_grad()
        other.zero_grad()
        layers(inputs[rank * 4 : (rank + 1) * 4]).square().mean().backward()
        alone(inputs).square().mean().backward()
        optimizer.step()
        other.step()
    for sharded, whole in zip(layers.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(sharded.full_tensor(), whole, atol=1e-6)


def check_subgroups_of_gloo(rank, size):
    """Beside a default group of our own they meet in the job's store."""
    group = dist.new_group(list(range(size - 1)), backend="gloo")
    if rank < size - 1:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == size - 1
