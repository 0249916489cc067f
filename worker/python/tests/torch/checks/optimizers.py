"""DistributedOptimizer against one process that sees the batches of all ranks."""

import copy
import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

import elasticrun.torch as hvd

BATCH = 4


def network():
    torch.manual_seed(0)
    # Two buckets at least: the first ends after a MiB.
    return torch.nn.Sequential(
        torch.nn.Linear(10, 600),
        torch.nn.ReLU(),
        torch.nn.Linear(600, 600),
        torch.nn.Linear(600, 10),
    )


def difference(rank, size, kind=torch.optim.SGD, passes=1, clip=None, settings=None, **options):
    """Largest difference between the parameters of the ranks' training and of one process's."""
    settings = dict(settings or {})
    ours = network()
    alone = copy.deepcopy(ours)
    optimizer = hvd.DistributedOptimizer(
        kind(ours.parameters(), **options),
        named_parameters=ours.named_parameters(),
        backward_passes_per_step=passes,
        **settings,
    )
    other = kind(alone.parameters(), **options)
    factor = size if settings.get("op") == hvd.Sum else 1
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        optimizer.zero_grad()
        other.zero_grad()
        for _ in range(passes):
            inputs = torch.randn(size * BATCH, 10, generator=generator)
            labels = torch.randint(0, 10, (size * BATCH,), generator=generator)
            mine = slice(rank * BATCH, (rank + 1) * BATCH)
            cross_entropy(ours(inputs[mine]), labels[mine]).backward()
            (cross_entropy(alone(inputs), labels) * factor).backward()
        if clip is None:
            optimizer.step()
        else:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(ours.parameters(), clip)
            torch.nn.utils.clip_grad_norm_(alone.parameters(), clip)
            with optimizer.skip_synchronize():
                optimizer.step()
        other.step()
    pairs = zip(ours.parameters(), alone.parameters(), strict=True)
    return max((one - two).abs().max().item() for one, two in pairs)


def check_average(rank, size):
    assert difference(rank, size, lr=0.1, momentum=0.9) < 1e-6


def check_sum(rank, size):
    assert difference(rank, size, settings={"op": hvd.Sum}, lr=0.01) < 1e-6


def check_adamw(rank, size):
    # Its steps are of one size however small the gradient is, so differences in the last bit grow.
    assert difference(rank, size, kind=torch.optim.AdamW, lr=1e-3) < 1e-4


def check_predivide_factor(rank, size):
    assert difference(rank, size, settings={"gradient_predivide_factor": 3.0}, lr=0.1) < 1e-6


def check_several_backward_passes(rank, size):
    assert difference(rank, size, passes=3, lr=0.1) < 1e-6


def check_clipping_between_synchronize_and_step(rank, size):
    assert difference(rank, size, clip=0.1, lr=0.1) < 1e-6


def check_groups(rank, size):
    assert difference(rank, size, settings={"groups": 2}, lr=0.1) < 1e-6
    with pytest.raises(ValueError, match="groups is 0"):
        difference(rank, size, settings={"groups": 0}, lr=0.1)


def check_compression(rank, size):
    assert difference(rank, size, settings={"compression": hvd.Compression.fp16}, lr=0.1) < 1e-3


def check_parameters_without_gradient(rank, size):
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layers.parameters(), lr=0.1, weight_decay=0.5), layers.named_parameters()
    )
    untouched = layers[2].weight.clone()
    for _ in range(3):
        optimizer.zero_grad()
        # Rank 0 uses the first layer, the others the second; no rank uses the third.
        layers[min(rank, 1)](torch.ones(2, 4)).sum().backward()
        optimizer.synchronize()
        assert torch.allclose(layers[0].weight.grad, torch.full((4, 4), 2 / size))
        assert torch.allclose(layers[1].weight.grad, torch.full((4, 4), 2 * (size - 1) / size))
        assert layers[2].weight.grad is None
        with optimizer.skip_synchronize():
            optimizer.step()
    # A gradient of zero would have let the weight decay at it.
    assert torch.equal(layers[2].weight, untouched)


def check_join_with_uneven_data(rank, size):
    layer = torch.nn.Linear(4, 4)
    hvd.broadcast_parameters(layer.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    for step in range(rank + 1):
        optimizer.zero_grad()
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.synchronize()
        expected = 2 * (size - max(step, 0)) / size if step else 2.0
        assert torch.allclose(layer.weight.grad, torch.full((4, 4), expected)), (
            step,
            layer.weight.grad,
        )
        with optimizer.skip_synchronize():
            optimizer.step()
    assert hvd.join() == size - 1


def check_closure(rank, size):
    layer = torch.nn.Linear(4, 4)
    hvd.broadcast_parameters(layer.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(layer.parameters()), layer.named_parameters())

    def closure():
        optimizer.zero_grad()
        loss = layer(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    first = closure().item()
    optimizer.synchronize()
    optimizer.step(closure)
    assert closure().item() < first
    optimizer.synchronize()
    assert len({str(w) for w in hvd.allgather_object(layer.weight.tolist())}) == 1


def check_adasum_steps(rank, size):
    layer = torch.nn.Linear(4, 4, bias=False)
    hvd.broadcast_parameters(layer.state_dict(), 0)
    before = layer.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters(), op=hvd.Adasum
    )
    # The same gradient on all ranks: the combined step is that of one.
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert torch.allclose(layer.weight, before - 0.2)
    with pytest.raises(AssertionError, match="Adasum"), optimizer.skip_synchronize():
        pass


def check_wrapping_again_takes_over(rank, size):
    layer = torch.nn.Linear(4, 4)
    for _ in range(3):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    optimizer.zero_grad()
    layer(torch.full((2, 4), float(rank))).sum().backward()
    optimizer.synchronize()
    assert torch.allclose(layer.weight.grad, torch.full((4, 4), float(size - 1)))
    with optimizer.skip_synchronize():
        optimizer.step()


def check_guards(rank, size):
    layer = torch.nn.Linear(4, 4)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), layer.named_parameters())
    layer(torch.ones(2, 4)).sum().backward()
    with pytest.raises(AssertionError, match="zero_grad"):
        optimizer.zero_grad()
    with pytest.raises(AssertionError, match="more than 1 time"):
        layer(torch.ones(2, 4)).sum().backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match="skip_synchronize"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.zero_grad()
        layer(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def check_arguments(rank, size):
    layer = torch.nn.Linear(4, 4)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    named = list(layer.named_parameters())
    for arguments, words in [
        ({"named_parameters": named + named[:1]}, "more than once: weight"),
        ({"named_parameters": named[:1]}, r"1 parameter\(s\) of the optimizer"),
        ({"named_parameters": [p for _, p in named]}, "pairs of name and parameter"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step is 0"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op=Average, not Sum"),
        ({"op": 17}, "op is 17"),
    ]:
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(sgd, **arguments)


def check_class_and_schedulers(rank, size):
    layer = torch.nn.Linear(4, 4)
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    early = torch.optim.lr_scheduler.StepLR(sgd, 1)
    optimizer = hvd.DistributedOptimizer(sgd, layer.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer._parameter_names == {layer.weight: "weight", layer.bias: "bias"}
    late = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.zero_grad()
    layer(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    late.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)
    assert early is not None


def check_sparse_gradients(rank, size):
    embedding = torch.nn.Embedding(5, 2, sparse=True)
    hvd.broadcast_parameters(embedding.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(embedding.parameters(), lr=1.0),
        embedding.named_parameters(),
        sparse_as_dense=True,
    )
    before = embedding.weight.detach().clone()
    embedding(torch.tensor([rank])).sum().backward()
    optimizer.step()
    expected = before.clone()
    expected[:size] -= 1 / size
    assert torch.allclose(embedding.weight, expected)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), lr=1.0), embedding.named_parameters())
    optimizer.zero_grad()
    with pytest.raises(NotImplementedError, match="'weight'.*sparse"):
        embedding(torch.tensor([rank])).sum().backward()


def check_broadcast_of_states(rank, size):
    layer = torch.nn.Linear(4, 4)
    hvd.broadcast_parameters(layer.state_dict(), 1)
    hvd.broadcast_parameters(list(layer.named_parameters()), 1)
    hvd.broadcast_parameters(list(layer.parameters()), 1)
    assert len({str(w) for w in hvd.allgather_object(layer.weight.tolist())}) == 1
    with pytest.raises(ValueError, match="params is a int"):
        hvd.broadcast_parameters(3, 0)
    for kind in [torch.optim.Adam, torch.optim.SGD, torch.optim.LBFGS]:
        optimizer = kind(layer.parameters(), lr=0.1 * (rank + 1))
        if rank == 0:

            def closure(optimizer=optimizer):
                optimizer.zero_grad()
                loss = layer(torch.ones(1, 4)).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)
        hvd.broadcast_optimizer_state(optimizer, 0)
        hvd.broadcast_parameters(layer.state_dict(), 0)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
        states = hvd.allgather_object(optimizer.state_dict())
        assert str(states[rank]) == str(states[0]), kind
