"""Each collective against what one process computes by itself."""

import pytest
import torch

import elasticrun.torch as hvd
from elasticrun.torch.adasum import pair

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def of_rank(rank, shape=(5, 3), dtype=torch.float32):
    """A tensor that each rank can compute for all."""
    generator = torch.Generator().manual_seed(rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def of_all(size, **options):
    return torch.stack([of_rank(rank, **options) for rank in range(size)])


def check_sum_of_each_type(rank, size):
    for dtype in FLOATS + INTEGERS:
        result = hvd.allreduce(of_rank(rank, dtype=dtype), op=hvd.Sum, name=str(dtype))
        # Half-precision sums are accumulated in 32 bits and rounded once or twice.
        expected = of_all(size, dtype=dtype).to(torch.float64).sum(0)
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 1e-1}.get(dtype, 1e-6)
        assert result.dtype == dtype
        assert torch.allclose(result.double(), expected, atol=tolerance, rtol=tolerance), dtype


def check_reductions(rank, size):
    every = of_all(size)
    for op, expected in [
        (hvd.Average, every.mean(0)),
        (hvd.Sum, every.sum(0)),
        (hvd.Min, every.amin(0)),
        (hvd.Max, every.amax(0)),
        (hvd.Product, every.prod(0)),
    ]:
        assert torch.allclose(hvd.allreduce(of_rank(rank), op=op), expected, atol=1e-6), op


def check_all_ranks_get_the_same_bits(rank, size):
    result = hvd.allreduce(of_rank(rank, shape=(1001,)))
    assert len({bytes(data) for data in hvd.allgather_object(result.numpy().tobytes())}) == 1


def check_factors(rank, size):
    result = hvd.allreduce(of_rank(rank), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.allclose(result, of_all(size).sum(0) * 1.5, atol=1e-5)


def check_average_argument_of_old_scripts(rank, size):
    assert torch.allclose(hvd.allreduce(of_rank(rank), average=False), of_all(size).sum(0))
    assert torch.allclose(hvd.allreduce(of_rank(rank), average=True), of_all(size).mean(0))
    with pytest.raises(ValueError, match="both"):
        hvd.allreduce(of_rank(rank), average=True, op=hvd.Sum)


def check_input_is_left_alone(rank, size):
    tensor = of_rank(rank)
    hvd.allreduce(tensor)
    assert torch.equal(tensor, of_rank(rank))
    hvd.allreduce_(tensor)
    assert torch.allclose(tensor, of_all(size).mean(0), atol=1e-6)


def check_tensors_that_are_not_contiguous(rank, size):
    tensor = of_rank(rank, shape=(4, 6)).t()[::2]
    expected = of_all(size, shape=(4, 6)).mean(0).t()[::2]
    assert torch.allclose(hvd.allreduce(tensor), expected, atol=1e-6)
    backing = torch.full((6, 4), -1.0)
    backing[::2].copy_(tensor)
    hvd.allreduce_(backing[::2])
    assert torch.allclose(backing[::2], expected, atol=1e-6)
    assert (backing[1::2] == -1).all()


def check_empty_and_scalar(rank, size):
    assert hvd.allreduce(torch.empty(0)).shape == (0,)
    assert hvd.allreduce(torch.tensor(float(rank)), op=hvd.Sum).item() == sum(range(size))


def check_async_handles(rank, size):
    tensors = [of_rank(rank, shape=(index + 1,)) for index in range(20)]
    handles = [hvd.allreduce_async(tensor, name=f"t{i}") for i, tensor in enumerate(tensors)]
    for index, handle in enumerate(handles):
        result = hvd.synchronize(handle)
        assert hvd.poll(handle)
        assert torch.allclose(result, of_all(size, shape=(index + 1,)).mean(0), atol=1e-6)


def check_grouped(rank, size):
    shapes = [(3,), (2, 2), ()]
    tensors = [of_rank(rank, shape=shape) for shape in shapes] + [of_rank(rank, dtype=torch.float64)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    for shape, result in zip(shapes, results[:3], strict=True):
        assert torch.allclose(result, of_all(size, shape=shape).sum(0), atol=1e-6)
    assert torch.allclose(results[3], of_all(size, dtype=torch.float64).sum(0))


def check_compression(rank, size):
    result = hvd.allreduce(of_rank(rank), compression=hvd.Compression.fp16)
    assert result.dtype == torch.float32
    assert torch.allclose(result, of_all(size).mean(0), atol=5e-3)


def check_allgather_of_unequal_rows(rank, size):
    result = hvd.allgather(of_rank(rank, shape=(rank + 1, 2)))
    expected = torch.cat([of_rank(other, shape=(other + 1, 2)) for other in range(size)])
    assert torch.equal(result, expected)


def check_allgather_of_equal_rows_types_and_scalars(rank, size):
    for dtype in [torch.bool, torch.complex64, torch.int64]:
        tensor = torch.tensor([[rank % 2, 1]]).to(dtype)
        result = hvd.allgather(tensor)
        assert torch.equal(result, torch.tensor([[r % 2, 1] for r in range(size)]).to(dtype))
    assert hvd.allgather(torch.tensor(rank)).tolist() == list(range(size))


def check_allgather_where_one_rank_has_nothing(rank, size):
    result = hvd.allgather(torch.full((0 if rank == 1 else 2, 2), float(rank)))
    assert result[:, 0].tolist() == [float(r) for r in range(size) if r != 1 for _ in range(2)]


def check_grouped_allgather(rank, size):
    one, two = hvd.grouped_allgather([torch.full((rank,), rank), torch.full((1, 2), rank)])
    assert one.tolist() == [r for r in range(size) for _ in range(r)]
    assert two[:, 1].tolist() == list(range(size))


def check_broadcast(rank, size):
    for root in range(size):
        assert torch.equal(hvd.broadcast(of_rank(rank), root), of_rank(root))
        tensor = of_rank(rank)
        hvd.broadcast_(tensor.t(), root)
        assert torch.equal(tensor, of_rank(root))
    with pytest.raises(ValueError, match=f"root_rank {size} is no rank"):
        hvd.broadcast(of_rank(rank), size)


def check_alltoall(rank, size):
    rows = torch.arange(size * 2) + 100 * rank
    equal = hvd.alltoall(rows)
    assert equal.tolist() == [100 * other + 2 * rank + step for other in range(size) for step in range(2)]
    splits = torch.tensor([rank + other for other in range(size)])
    tensor = torch.full((int(splits.sum()), 3), float(rank))
    received, counts = hvd.alltoall(tensor, splits)
    assert counts.tolist() == [other + rank for other in range(size)]
    assert received[:, 0].tolist() == [float(r) for r in range(size) for _ in range(r + rank)]
    with pytest.raises(ValueError, match="splits"):
        hvd.alltoall(tensor, [1] * (size + 1))


def check_reducescatter(rank, size):
    for rows in [size * 2, size * 2 + 1]:
        shares = [rows // size + (other < rows % size) for other in range(size)]
        start = sum(shares[:rank])
        expected = of_all(size, shape=(rows, 3)).sum(0)[start : start + shares[rank]]
        result = hvd.reducescatter(of_rank(rank, shape=(rows, 3)), op=hvd.Sum)
        assert torch.allclose(result, expected, atol=1e-5)
        result = hvd.reducescatter(of_rank(rank, shape=(rows, 3)))
        assert torch.allclose(result, expected / size, atol=1e-5)


def check_reducescatter_of_integers_and_scalars(rank, size):
    for dtype in INTEGERS:
        own = torch.full((size, 3), 5, dtype=dtype)
        for factors, expected in [
            ({"prescale_factor": 0.5}, 2 * size),
            ({"postscale_factor": 0.5}, 5 * size // 2),
            ({"prescale_factor": 0.5, "postscale_factor": 3.0}, 6 * size),
        ]:
            for result in [
                hvd.reducescatter(own, op=hvd.Sum, **factors),
                *hvd.grouped_reducescatter([own], op=hvd.Sum, **factors),
            ]:
                assert result.dtype == dtype
                assert result.tolist() == [[expected] * 3], (dtype, factors)
                assert torch.equal(result[0], hvd.allreduce(own[0], op=hvd.Sum, **factors))
    large = torch.full((size,), 2**40 + 1, dtype=torch.int64)
    assert hvd.reducescatter(large, op=hvd.Max, postscale_factor=2.0).tolist() == [2**41 + 2]
    assert hvd.reducescatter(-torch.ones(size, dtype=torch.int32), op=hvd.Max, postscale_factor=1.5).tolist() == [-1]
    flags = torch.ones(size, dtype=torch.bool)
    for call in [hvd.reducescatter, lambda tensor, **how: hvd.synchronize(hvd.reducescatter_async(tensor, **how))]:
        with pytest.raises(TypeError, match="bool cannot be scaled"):
            call(flags, op=hvd.Sum, postscale_factor=0.5)
        with pytest.raises(ValueError, match="reducescatter of a scalar"):
            call(torch.tensor(1.0))
    hvd.barrier()


def check_what_is_no_tensor(rank, size):
    for call, given, words in [
        (lambda x: hvd.broadcast(x, 0), None, "broadcast takes a torch.Tensor, not None"),
        (lambda x: hvd.broadcast_(x, 0), 1.0, "broadcast takes a torch.Tensor, not a float"),
        (hvd.allreduce, None, "allreduce takes a torch.Tensor, not None"),
        (hvd.allgather, [1.0], "allgather takes a torch.Tensor, not a list"),
        (hvd.alltoall, None, "alltoall takes a torch.Tensor, not None"),
        (hvd.reducescatter, None, "reducescatter takes a torch.Tensor, not None"),
        (lambda x: hvd.grouped_allreduce([torch.ones(1), x]), None, "grouped_allreduce takes a torch.Tensor, not None"),
    ]:
        with pytest.raises(TypeError, match=words):
            call(given)
    hvd.barrier()


def check_objects(rank, size):
    assert hvd.broadcast_object({"from": rank}, size - 1) == {"from": size - 1}
    assert hvd.allgather_object("x" * rank) == ["x" * other for other in range(size)]


def check_adasum(rank, size):
    def tree(values):
        """What recursive doubling makes of the ranks' values."""
        inner = 1 << (len(values).bit_length() - 1)
        first, extra = list(values[:inner]), values[inner:]
        for index, value in enumerate(extra):
            first[index] = pair(first[index], value)
        while len(first) > 1:
            first = [pair(first[i], first[i + 1]) for i in range(0, len(first), 2)]
        return first[0]

    values = [of_rank(other, shape=(7,)) for other in range(size)]
    result = hvd.allreduce(values[rank], op=hvd.Adasum)
    assert torch.allclose(result, tree(values), atol=1e-6)
    same = hvd.allreduce(torch.ones(4), op=hvd.Adasum)
    assert torch.allclose(same, torch.ones(4))
    axis = torch.nn.functional.one_hot(torch.tensor(rank), size).float()
    assert torch.allclose(hvd.allreduce(axis, op=hvd.Adasum), torch.ones(size))
    with pytest.raises(TypeError, match="floats only"):
        hvd.allreduce(torch.ones(2, dtype=torch.int32), op=hvd.Adasum)
    hvd.barrier()


def check_join(rank, size):
    for step in range(rank):
        # Ranks below have joined already, and take part with zeros; the divisor stays.
        result = hvd.allreduce(torch.ones(3), name=f"step {step}")
        assert torch.allclose(result, torch.full((3,), (size - step - 1) / size))
    assert hvd.join() == size - 1


def check_sparse_is_refused(rank, size):
    sparse = torch.eye(3).to_sparse()
    for call in [hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter]:
        with pytest.raises(NotImplementedError, match="sparse"):
            call(sparse)
    with pytest.raises(NotImplementedError, match="to_dense"):
        hvd.sparse_allreduce_async(sparse, "x", hvd.Sum)


def check_what_is_not_offered_says_so(rank, size):
    with pytest.raises(NotImplementedError, match="process set"):
        hvd.ProcessSet([0])
    with pytest.raises(NotImplementedError, match="process set"):
        hvd.allreduce(torch.ones(1), process_set=object())
    with pytest.raises(NotImplementedError, match="start_timeline"):
        hvd.start_timeline("file")
    with pytest.raises(TypeError, match="complex64"):
        hvd.allreduce(torch.ones(1, dtype=torch.complex64))
    assert hvd.global_process_set.size() == size
    assert isinstance(hvd.global_process_set, hvd.ProcessSet)


def check_what_the_build_has(rank, size):
    assert hvd.gloo_built() and hvd.gloo_enabled()
    assert not hvd.mpi_built() and not hvd.mpi_enabled() and not hvd.mpi_threads_supported()
    assert bool(hvd.nccl_built()) == torch.cuda.is_available()
    assert hvd.is_homogeneous()


def check_allgather_of_a_conjugate_view(rank, size):
    tensor = torch.full((1, 2), complex(rank, 1))
    gathered = hvd.allgather(tensor.conj())
    assert gathered.tolist() == [[complex(other, -1)] * 2 for other in range(size)]
