"""torch.distributed over the back end of the job, against what one process computes."""

import copy
import signal
import tempfile
import threading

import pytest
import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.nn.parallel import DistributedDataParallel

from elasticrun import lifecycle
from elasticrun.errors import ElasticrunError


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


def check_bits(rank, size):
    for op, expected in [
        (dist.ReduceOp.BAND, 8),
        (dist.ReduceOp.BOR, 8 + 2**size - 1),
        (dist.ReduceOp.BXOR, 8 * (size % 2) + 2**size - 1),
    ]:
        tensor = torch.full((5,), 8 + 2**rank, dtype=torch.int32)
        dist.all_reduce(tensor, op)
        assert tensor.tolist() == [expected] * 5, op
    if ours():
        flags = torch.tensor([True, rank == 0, False])
        dist.all_reduce(flags, dist.ReduceOp.BAND)
        assert flags.tolist() == [True, False, False]
        with pytest.raises(TypeError, match="band of torch.float32: bits are those of integers"):
            dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)


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


def check_what_needs_a_back_end_of_torch_is_refused_by_name(rank, size):
    """Invalid calls raise on all ranks before any of them waits, and the group still works."""
    if not ours():
        return
    with pytest.raises(RuntimeError, match="does not support splitting"):
        dist.split_group(split_ranks=[list(range(size))])
    with pytest.raises(ValueError, match="monitored_barrier requires"):
        dist.monitored_barrier()
    with tempfile.TemporaryDirectory() as folder, pytest.raises(AssertionError, match="async save"):
        checkpoint.async_save({"weight": torch.ones(2)}, checkpoint_id=folder)
    check_all_reduce(rank, size)


def check_sparse_gradients_of_ddp_are_refused_by_name(rank, size):
    if not ours():
        return
    model = DistributedDataParallel(torch.nn.Embedding(4, 2, sparse=True))
    with pytest.raises(Exception, match="allreduce of a sparse tensor .* is not offered: pass tensor.to_dense"):
        model(torch.tensor([rank])).sum().backward()
    check_all_reduce(rank, size)


def trained(rank, size, wrap):
    """Parameters after three steps, of this rank's share of each batch or of the whole."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(10, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))
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
        together = trained(rank, size, lambda layers, o=options: DistributedDataParallel(layers, **o))
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
    """With an elasticrun default group, they connect through the job's store."""
    group = dist.new_group(list(range(size - 1)), backend="gloo")
    if rank < size - 1:
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        assert tensor[0] == size - 1


def check_order_is_per_group(rank, size):
    """What two groups of all ranks do is not paired, in whatever order a rank calls it."""
    other = dist.new_group()
    ones, hundreds = torch.ones(4), torch.full((4,), 100.0)
    calls = [(ones, None), (hundreds, other)]
    works = [
        dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in (calls if rank == 0 else calls[::-1])
    ]
    for work in works:
        work.wait()
    assert ones.tolist() == [size] * 4
    assert hundreds.tolist() == [100 * size] * 4


def check_two_groups_in_two_threads(rank, size):
    other = dist.new_group()
    failures = []

    def sums(group, count):
        try:
            for step in range(30):
                tensor = torch.full((count,), float(step))
                dist.all_reduce(tensor, group=group)
                assert tensor.tolist() == [step * size] * count
        except BaseException as error:
            failures.append(error)

    beside = threading.Thread(target=sums, args=(other, 7))
    beside.start()
    sums(None, 5)
    beside.join()
    assert not failures, failures


def premultiplied(factor):
    return dist._make_nccl_premul_sum(factor)


def check_outputs_of_another_type_are_refused(rank, size):
    if not ours():
        return
    memory = torch.full((4096,), 7, dtype=torch.int8)
    output = memory[:12]
    calls = [
        lambda: dist.reduce_scatter_tensor(output, torch.ones(12 * size)),
        lambda: dist.reduce_scatter(output, [torch.ones(12)] * size),
        lambda: dist.all_gather_into_tensor(memory[: 12 * size], torch.ones(12)),
        lambda: dist.all_to_all_single(memory[:size], torch.ones(size)),
        lambda: dist.all_to_all_single(memory[:size].view(torch.uint8), torch.ones(size)),
        lambda: dist.all_to_all([memory[:1]] * size, [torch.ones(1)] * size),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)):
            call()
    assert (memory == 7).all()


def check_native_collectives_know_the_size_of_each_buffer(rank, size):
    queue, memory = lifecycle.collective_queue("test"), torch.full((4096,), 7, dtype=torch.int8)
    values = torch.ones(12 * size)
    at, values_at = memory.data_ptr(), (values.data_ptr(), values.numel() * 4)
    with pytest.raises(ValueError, match="reduce_scatter"):
        queue.reduce_scatter(values_at, (at, 12), "f32", "sum")
    with pytest.raises(ValueError, match="not a multiple"):
        queue.reduce_scatter(values_at, (at, 13), "f32", "sum")
    with pytest.raises(ValueError, match="not a multiple"):
        queue.allreduce([(at, 13)], "f32", "sum")
    with pytest.raises(ValueError, match="allgather"):
        queue.allgather(values_at, (at, 13))
    with pytest.raises(ValueError, match="alltoall"):
        queue.alltoall(values_at, [4] * size, (at, 12), [16] * size)
    assert (memory == 7).all()


def check_scaled_reduce_scatter(rank, size):
    if not ours():
        return
    for dtype in (torch.int8, torch.int64, torch.float16, torch.float32):
        memory = torch.full((256,), 7, dtype=dtype)
        source = torch.arange(12 * size).remainder(5).to(dtype)
        dist.reduce_scatter_tensor(memory[:12], source, op=premultiplied(2.0))
        expected = 2 * size * source[12 * rank : 12 * (rank + 1)]
        assert torch.equal(memory[:12], expected), dtype
        assert (memory[12:] == 7).all(), dtype


def check_bool(rank, size):
    """A sum of flags is "any", and their bytes stay 0 and 1."""
    flags = torch.tensor([True, False]).repeat(size)
    output = torch.zeros(2, dtype=torch.bool)
    if ours():
        dist.reduce_scatter_tensor(output, flags)
        assert output.view(torch.uint8).tolist() == [1, 0]
        with pytest.raises(TypeError, match="bool cannot be scaled"):
            dist.all_reduce(flags, op=premultiplied(2.0))
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.view(torch.uint8).tolist() == [1, 0] * size


def check_a_split_that_one_rank_gets_wrong_is_an_error_everywhere(rank, size):
    if not ours():
        return
    room = [1] * size
    if rank == 1:
        room[0] = 2
    with pytest.raises(ElasticrunError, match="rank 0 sends 4 bytes to rank 1, which has room for 8"):
        dist.all_to_all_single(torch.zeros(sum(room)), torch.ones(size), room, [1] * size)
    dist.barrier()


def check_a_callback_may_wait_for_a_collective(rank, size):
    def again(future):
        tensor = torch.full((3,), float(future.value()[0][0]))
        dist.all_reduce(tensor)
        third = dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0]
        return tensor[0] + third[0]

    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert work.get_future().then(again).wait() == size * size + size


def check_ddp_with_power_sgd(rank, size):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    def wrap(layers):
        model = DistributedDataParallel(layers)
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=4, start_powerSGD_iter=2, min_compression_rate=1
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model

    together = trained(rank, size, wrap)
    gathered = [torch.empty_like(together) for _ in range(size)]
    dist.all_gather(gathered, together)
    assert all(torch.equal(one, together) for one in gathered)


def check_compiled_ddp(rank, size):
    def wrap(layers):
        return torch.compile(DistributedDataParallel(layers), backend="eager")

    alone = trained(rank, size, lambda layers: layers)
    assert torch.allclose(trained(rank, size, wrap), alone, atol=1e-6)


def check_waits_of_the_main_thread_see_signals(rank, size):
    if not ours():
        return
    queue = lifecycle.collective_queue("test")
    stuck = None if rank == 1 else queue.barrier()

    def ring(*_):
        raise InterruptedError

    if stuck is not None:
        last = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with pytest.raises(InterruptedError):
                queue.set_timeout(None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, last)
    # The last to come to the barrier comes when the others were interrupted.
    dist.distributed_c10d._get_default_store().add("interrupted", int(rank != 1))
    while dist.distributed_c10d._get_default_store().add("interrupted", 0) < size - 1:
        pass
    (stuck or queue.barrier()).wait()
