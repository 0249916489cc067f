"""Subgroups of the elasticrun back end: two halves at the same time, and features that are built on such groups."""

import copy
import functools

import pytest
import torch
import torch.distributed as dist


@functools.cache
def halves(size):
    """The group of the even ranks and that of the odd ones."""
    return [dist.new_group(list(range(first, size, 2))) for first in range(2)]


def mine(rank, size):
    """This rank's group, its place in it, and the ranks in it."""
    group = halves(size)[rank % 2]
    return group, rank // 2, list(range(rank % 2, size, 2))


def check_who_is_in_it(rank, size):
    group, place, ranks = mine(rank, size)
    assert dist.get_backend(group) == "elasticrun"
    assert (group.rank(), group.size()) == (place, len(ranks))
    assert dist.get_process_group_ranks(group) == ranks
    assert halves(size)[1 - rank % 2] == dist.GroupMember.NON_GROUP_MEMBER


def check_all_reduce(rank, size):
    group, _, ranks = mine(rank, size)
    of_all = {
        dist.ReduceOp.SUM: sum(ranks),
        dist.ReduceOp.AVG: sum(ranks) / len(ranks),
        dist.ReduceOp.MIN: min(ranks),
        dist.ReduceOp.MAX: max(ranks),
        dist.ReduceOp.PRODUCT: ranks[0] * ranks[1],
    }
    for op, expected in of_all.items():
        tensor = torch.full((3, 2), float(rank)).t()
        dist.all_reduce(tensor, op, group=group)
        assert (tensor == expected).all(), op
    both = torch.tensor([rank < 2, False])
    dist.all_reduce(both, group=group)
    assert both.tolist() == [True, False]
    with pytest.raises(TypeError, match="int16 cannot be combined"):
        dist.all_reduce(torch.ones(1, dtype=torch.int16), group=group)
    bits = torch.full((2,), 1 << (rank // 2), dtype=torch.int32)
    dist.all_reduce(bits, dist.ReduceOp.BXOR, group=group)
    assert bits.tolist() == [3, 3]


def check_work(rank, size):
    group, _, ranks = mine(rank, size)
    tensor = torch.full((2,), float(rank))
    work = dist.all_reduce(tensor, group=group, async_op=True)
    value = work.get_future().then(lambda done: done.value()[0] + 1).wait()
    assert value.tolist() == [sum(ranks) + 1] * 2
    assert work.wait() and work.is_completed()


def check_broadcast_and_objects(rank, size):
    group, _, ranks = mine(rank, size)
    for kind in (torch.float32, torch.int16, torch.bool, torch.complex64):
        tensor = torch.full((2, 2), rank == ranks[1]).to(kind).t()
        dist.broadcast(tensor, ranks[1], group=group)
        assert (tensor == torch.ones(()).to(kind)).all()
    gathered = [None] * len(ranks)
    dist.all_gather_object(gathered, {"rank": rank}, group=group)
    assert gathered == [{"rank": other} for other in ranks]


def check_all_gather(rank, size):
    group, _, ranks = mine(rank, size)
    outputs = [torch.zeros(2, dtype=torch.int16) for _ in ranks]
    dist.all_gather(outputs, torch.full((2,), rank, dtype=torch.int16), group=group)
    assert [output[0].item() for output in outputs] == ranks
    flat = torch.empty(len(ranks) * 2)
    dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)), group=group)
    assert flat[::2].tolist() == ranks


def check_reduce_scatter(rank, size):
    group, place, ranks = mine(rank, size)
    count = len(ranks)
    output = torch.empty(2)
    inputs = [torch.full((2,), float(other)) for other in range(count)]
    dist.reduce_scatter(output, inputs, group=group)
    assert output.tolist() == [float(place * count)] * 2
    dist.reduce_scatter_tensor(output, torch.arange(count * 2.0) + rank, op=dist.ReduceOp.AVG, group=group)
    assert output.tolist() == [2 * place + sum(ranks) / count, 2 * place + 1 + sum(ranks) / count]


def check_reduce_gather_scatter(rank, size):
    group, _, ranks = mine(rank, size)
    root = ranks[-1]
    tensor = torch.full((2,), float(rank))
    dist.reduce(tensor, root, group=group)
    assert tensor[0] == (sum(ranks) if rank == root else rank)
    gathered = [torch.zeros(2) for _ in ranks] if rank == root else None
    dist.gather(torch.full((2,), float(rank)), gathered, dst=root, group=group)
    if rank == root:
        assert [one[0].item() for one in gathered] == ranks
    output = torch.zeros(2)
    shares = [torch.full((2,), float(other)) for other in ranks] if rank == root else None
    dist.scatter(output, shares, src=root, group=group)
    assert output[0] == rank


def check_all_to_all(rank, size):
    group, place, ranks = mine(rank, size)
    output = torch.zeros(len(ranks), dtype=torch.int16)
    dist.all_to_all_single(output, torch.arange(len(ranks), dtype=torch.int16) + 10 * rank, group=group)
    assert output.tolist() == [10 * other + place for other in ranks]
    received = torch.zeros(sum(other + 1 for other in ranks), 2)
    dist.all_to_all_single(
        received,
        torch.full((len(ranks) * (rank + 1), 2), float(rank)),
        [other + 1 for other in ranks],
        [rank + 1] * len(ranks),
        group=group,
    )
    assert received[:, 1].tolist() == [float(r) for r in ranks for _ in range(r + 1)]


def check_barrier(rank, size):
    dist.barrier(group=mine(rank, size)[0])


def check_messages(rank, size):
    group, place, ranks = mine(rank, size)
    before, after = ranks[place - 1], ranks[(place + 1) % len(ranks)]
    received = torch.zeros(2)
    sent = dist.isend(torch.full((2,), float(rank)), after, group=group, tag=5)
    assert dist.recv(received, before, group=group, tag=5) == before
    sent.wait()
    assert received.tolist() == [before] * 2
    if place == 0:
        assert dist.recv(received, group=group) == ranks[1]
        assert received.tolist() == [ranks[1]] * 2
    else:
        dist.send(torch.full((2,), float(rank)), ranks[0], group=group)


def check_a_group_of_one(rank, size):
    groups = [dist.new_group([other]) for other in range(size)]
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor, group=groups[rank])
    output = torch.empty(2)
    dist.reduce_scatter_tensor(output, tensor, group=groups[rank])
    assert tensor.tolist() == output.tolist() == [rank] * 2


def check_a_group_that_is_left_and_made_again(rank, size):
    for times in range(3):
        group = dist.new_group([0, 1])
        if rank < 2:
            tensor = torch.full((2,), float(times))
            dist.all_reduce(tensor, group=group)
            assert tensor.tolist() == [2 * times] * 2
            dist.destroy_process_group(group)


def check_all_ranks_in_another_order(rank, size):
    order = list(reversed(range(size)))
    group = dist.new_group(order, sort_ranks=False)
    assert group.rank() == size - 1 - rank
    gathered = [torch.zeros(1) for _ in order]
    dist.all_gather(gathered, torch.tensor([float(rank)]), group=group)
    assert [one.item() for one in gathered] == order


def check_device_mesh(rank, size):
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    row, column = divmod(rank, 2)
    assert list(mesh.get_coordinate()) == [row, column]
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mesh.get_group("columns"))
    assert tensor.item() == 4 * row + 1
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor, group=mesh.get_group("rows"))
    assert tensor.item() == 2 * column + 2


def check_tensor_parallel(rank, size):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("cpu", (2, 2))
    torch.manual_seed(0)
    left, right = torch.randn(8, 6), torch.randn(6, 4)
    product = distribute_tensor(left, mesh, [Shard(0), Replicate()]) @ distribute_tensor(
        right, mesh, [Replicate(), Shard(1)]
    )
    assert torch.allclose(product.full_tensor(), left @ right, atol=1e-6)


def check_hsdp(rank, size):
    """Sharded in pairs that replicate each other, compared with the model of one process."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    alone = copy.deepcopy(layers)
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
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
