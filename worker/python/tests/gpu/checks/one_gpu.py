"""Ranks that share a GPU: tensors go through host memory, since NCCL refuses such ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elasticrun.torch as er

DEVICE = torch.device("cuda", 0)
#: Clock cycles of about 50 ms.
LONG = 10**8


def full(value, *shape):
    return torch.full(shape, float(value), device=DEVICE)


def check_the_default_group(rank, size):
    er.init_process_group("elasticrun")
    assert dist.get_backend() == "elasticrun"
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)


def check_collectives(rank, size):
    total = size * (size + 1) / 2
    tensor = full(rank + 1, 3, 5)
    dist.all_reduce(tensor)
    assert tensor.device == DEVICE and (tensor == total).all()
    tensor = full(rank, 4)
    dist.broadcast(tensor, 1)
    assert (tensor == 1).all()
    gathered = full(-1, size, 2)
    dist.all_gather_into_tensor(gathered, full(rank, 2))
    assert gathered[:, 0].tolist() == list(range(size))
    share = full(-1, 2)
    dist.reduce_scatter_tensor(share, full(rank + 1, 2 * size))
    assert share.tolist() == [total] * 2
    received = full(-1, size)
    dist.all_to_all_single(received, full(rank, size))
    assert received.tolist() == list(range(size))
    # Of columns, whose elements lie apart.
    columns = full(rank + 1, 4, 4)[:, ::2]
    dist.all_reduce(columns)
    assert (columns == total).all()


def check_collectives_of_the_package(rank, size):
    assert er.allreduce(full(rank + 1, 3)).tolist() == [(size + 1) / 2] * 3
    assert er.broadcast(full(rank, 3), 1).tolist() == [1.0] * 3
    assert er.allgather(full(rank, 1)).tolist() == list(range(size))


def check_messages(rank, size):
    if rank == 0:
        dist.send(full(7, 10), 1)
    elif rank == 1:
        received = full(0, 10)
        dist.recv(received, 0)
        assert (received == 7).all()
    dist.barrier()


def check_a_group_of_some_ranks(rank, size):
    group = dist.new_group([0, 1])
    if rank < 2:
        tensor = full(rank + 1, 6)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [3.0] * 6
        gathered = full(-1, 2)
        dist.all_gather_into_tensor(gathered, full(rank, 1), group=group)
        assert gathered.tolist() == [0.0, 1.0]
        share = full(-1, 3)
        dist.reduce_scatter_tensor(share, full(rank + 1, 6), group=group)
        assert share.tolist() == [3.0] * 3
    dist.barrier()


def check_what_a_stream_does_before_comes_first(rank, size):
    stream = torch.cuda.Stream(DEVICE)
    for _ in range(3):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(1 << 20, device=DEVICE)
            torch.cuda._sleep(LONG)
            tensor.fill_(rank + 1)
            dist.all_reduce(tensor)
            assert (tensor == size * (size + 1) / 2).all()
            torch.cuda._sleep(LONG)
            tensor.fill_(-1)
            dist.broadcast(tensor, 0)
            received = torch.full((size, 4), -1.0, device=DEVICE)
            torch.cuda._sleep(LONG)
            received.fill_(-2)
            dist.all_gather_into_tensor(received, full(rank, 4))
        stream.synchronize()
        assert (tensor == -1).all()
        assert received[:, 0].tolist() == list(range(size))


def check_asynchronous_operations(rank, size):
    tensors = [full(rank + 1, 1 << index) for index in range(12)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert all((tensor == size * (size + 1) / 2).all() for tensor in tensors)


def check_gradients_of_ddp(rank, size):
    torch.manual_seed(3)
    model = torch.nn.Linear(64, 8).to(DEVICE)
    whole = torch.nn.Linear(64, 8).to(DEVICE)
    whole.load_state_dict(model.state_dict())
    rows = torch.randn(4 * size, 64, device=DEVICE)
    replica = DistributedDataParallel(model)
    replica(rows[4 * rank : 4 * rank + 4]).square().mean().backward()
    whole(rows).square().mean().backward()
    torch.testing.assert_close(model.weight.grad, whole.weight.grad)
