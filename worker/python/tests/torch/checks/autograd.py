"""Gradients through the collectives, as Horovod defines them."""

import torch

import elasticrun.torch as hvd


def leaf(rank, shape=(2, 3)):
    return torch.full(shape, float(rank + 1), requires_grad=True)


def check_allreduce(rank, size):
    tensor = leaf(rank)
    (hvd.allreduce(tensor, op=hvd.Sum) * (rank + 1)).sum().backward()
    assert torch.equal(tensor.grad, torch.full((2, 3), size * (size + 1) / 2))
    tensor.grad = None
    (hvd.allreduce(tensor) * (rank + 1)).sum().backward()
    assert torch.allclose(tensor.grad, torch.full((2, 3), (size + 1) / 2))


def check_grouped_allreduce(rank, size):
    one, two = leaf(rank), leaf(rank, (4,))
    first, second = hvd.grouped_allreduce([one, two], op=hvd.Sum)
    (first.sum() + 2 * second.sum()).backward()
    assert torch.equal(one.grad, torch.full((2, 3), float(size)))
    assert torch.equal(two.grad, torch.full((4,), 2.0 * size))


def check_allgather(rank, size):
    tensor = leaf(rank, (rank + 1, 2))
    gathered = hvd.allgather(tensor)
    weights = torch.arange(gathered.shape[0], dtype=torch.float32)[:, None]
    (gathered * weights).sum().backward()
    start = rank * (rank + 1) // 2
    assert tensor.grad[:, 0].tolist() == [float(start + row) for row in range(rank + 1)]


def check_broadcast(rank, size):
    tensor = leaf(rank)
    (hvd.broadcast(tensor, 1) * (rank + 1)).sum().backward()
    expected = (size + 1) / 2 if rank == 1 else 0.0
    assert torch.allclose(tensor.grad, torch.full((2, 3), expected))


def check_alltoall(rank, size):
    splits = [rank + 1] * size
    tensor = leaf(rank, (size * (rank + 1), 2))
    received, counts = hvd.alltoall(tensor, splits)
    assert not counts.requires_grad
    (received * (rank + 1)).sum().backward()
    assert tensor.grad[:, 0].tolist() == [float(other + 1) for other in range(size) for _ in range(rank + 1)]


def check_reducescatter(rank, size):
    tensor = leaf(rank, (size * 2, 2))
    (hvd.reducescatter(tensor, op=hvd.Sum) * (rank + 1)).sum().backward()
    # Horovod's definition: a sum's gradient is scaled by the number of ranks.
    assert tensor.grad[:, 0].tolist() == [float(size * (other + 1)) for other in range(size) for _ in range(2)]
    tensor.grad = None
    hvd.reducescatter(tensor).sum().backward()
    assert torch.equal(tensor.grad, torch.ones(size * 2, 2))


def check_sync_batch_norm(rank, size):
    batches = [2 + other for other in range(size)]
    start = sum(batches[:rank])
    generator = torch.Generator().manual_seed(0)
    every = torch.randn(sum(batches), 3, 4, 4, generator=generator) * 5 + 100
    weights = torch.randn(every.shape, generator=generator)
    mine = slice(start, start + batches[rank])
    ours, theirs = hvd.SyncBatchNorm(3), torch.nn.BatchNorm2d(3)
    own = every[mine].clone().requires_grad_()
    whole = every.clone().requires_grad_()
    output, expected = ours(own), theirs(whole)
    assert torch.allclose(output, expected[mine], atol=1e-4)
    (output * weights[mine]).sum().backward()
    (expected * weights).sum().backward()
    assert torch.allclose(own.grad, whole.grad[mine], atol=1e-4)
    for name in ["weight", "bias"]:
        total = hvd.allreduce(getattr(ours, name).grad, op=hvd.Sum)
        assert torch.allclose(total, getattr(theirs, name).grad, atol=1e-3), name
    assert torch.allclose(ours.running_mean, theirs.running_mean, rtol=1e-5)
    assert torch.allclose(ours.running_var, theirs.running_var, rtol=1e-4)
    assert ours.num_batches_tracked == 1
    ours.eval()
    theirs.eval()
    assert torch.allclose(ours(every), theirs(every), atol=1e-4)
