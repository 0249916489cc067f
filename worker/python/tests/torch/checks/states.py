"""TorchState: what is committed, what is rolled back, what is refused."""

import copy

import pytest
import torch

import elasticrun.torch as hvd
from elasticrun.errors import StateError


def trained(model, optimizer, factor=1.0):
    optimizer.zero_grad()
    (model(torch.full((2, 4), factor)).square().sum()).backward()
    optimizer.step()


def make():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
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
    # Other references to the tensors (such as DistributedDataParallel) see the restored values.
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
    copies = list(model.state_dict().values())
    for _ in range(4):
        state.extra = torch.randn(2, 3)
        trained(model, optimizer, 5.0)
        state.commit()
    assert [tensor.data_ptr() for tensor in copies] == [tensor.data_ptr() for tensor in model.state_dict().values()]
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
    with pytest.raises(StateError, match=r"ZeroRedundancyOptimizer .* use ShardedState"):
        hvd.elastic.TorchState(plain, sharded)
    from elasticrun.torch.elastic.zero import local_optimizer

    assert local_optimizer(sharded) is sharded.optim
    with pytest.raises(StateError, match="leave overlap_with_ddp out"):
        local_optimizer(ZeroRedundancyOptimizer(plain.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1))


class Keeps(torch.nn.Module):
    """Keeps the tensor that load_state_dict gives, as torchmetrics do; it is no parameter and no buffer."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(3)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "total"] = self.total.detach()

    def _load_from_state_dict(self, state_dict, prefix, *_):
        self.total = state_dict.pop(prefix + "total")


class Extra(torch.nn.Module):
    """Keeps its extra state."""

    def __init__(self):
        super().__init__()
        self.total = torch.zeros(3)

    def get_extra_state(self):
        return self.total

    def set_extra_state(self, state):
        self.total = state


class Hooked(torch.nn.Module):
    """Keeps what a hook of it sees."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.seen = None
        self.register_load_state_dict_pre_hook(self.see)

    @staticmethod
    def see(module, state_dict, prefix, *_):
        module.seen = state_dict[prefix + "total"]


def check_modules_that_keep_what_they_load_get_tensors_of_their_own(rank, size):
    for inner in (Keeps(), Extra(), Hooked()):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), inner)
        state = hvd.elastic.TorchState(model)
        inner.total.fill_(1)
        # Once from the copy of this process, once from the agent's memory.
        for keep in (state.save, state.commit):
            keep()
            state.restore()
            kept(inner).fill_(5)
            state.restore()
            assert kept(inner).tolist() == [1, 1, 1], type(inner)


def kept(module):
    return module.seen if isinstance(module, Hooked) else module.total


class Hoards(torch.nn.Module):
    """Keeps references to tensors in an unexpected place."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.kept = []


def check_a_tensor_that_is_kept_unseen_is_an_error(rank, size):
    model = Hoards()
    state = hvd.elastic.TorchState(model)
    whole = torch.nn.Module._load_from_state_dict

    def patched(self, state_dict, prefix, *args):
        if isinstance(self, Hoards):
            self.kept.append(state_dict["weight"])
        return whole(self, state_dict, prefix, *args)

    patched.__module__ = whole.__module__
    Hoards._load_from_state_dict = patched
    with pytest.raises(StateError, match=r"Hoards keeps the tensor 'weight'"):
        state.restore()


SCHEDULERS = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "one_cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=20),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, cycle_momentum=False),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
        [3],
    ),
}


@pytest.mark.filterwarnings("ignore")
def check_schedulers_act_on_the_live_optimizer(rank, size):
    def advance(optimizer, scheduler, name):
        optimizer.step()
        scheduler.step(1.0) if name == "plateau" else scheduler.step()

    for name, make_scheduler in SCHEDULERS.items():
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = make_scheduler(optimizer)
        state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler)
        for _ in range(3 if rank == 0 else 0):
            advance(optimizer, scheduler, name)
        state.sync()
        assert state.scheduler is scheduler and scheduler.optimizer is optimizer
        rates = []
        state.commit()
        for turn in range(8):
            advance(optimizer, scheduler, name)
            rates.append(optimizer.param_groups[0]["lr"])
            if turn == 3:
                state.restore()
        assert rates[:4] == rates[4:], name
        assert len(set(hvd.allgather_object(tuple(rates)))) == 1, name


class Trainer:
    def __init__(self, optimizer):
        self.optimizer = optimizer


def check_what_holds_another_attribute_is_refused(rank, size):
    model, optimizer = make()
    with pytest.raises(StateError, match=r"warmup\.optimizer.*'optimizer' of the state"):
        hvd.elastic.TorchState(model, optimizer, warmup=Trainer(optimizer))
    with pytest.raises(StateError, match=r"pair\[0\].*'model' of the state"):
        hvd.elastic.TorchState(model, pair=[model])
    # One that is not an attribute by itself goes with what holds it.
    state = hvd.elastic.TorchState(warmup=Trainer(optimizer))
    state.commit()
    state.restore()
    assert state.warmup.optimizer is not optimizer


def check_schedulers_of_a_wrapped_optimizer_act_on_it(rank, size):
    model = torch.nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(inner, 0.5)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer)
    state.sync()
    state.commit()
    state.restore()
    hvd.broadcast_optimizer_state(optimizer, 0)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


def check_master_weights_keep_their_type(rank, size):
    model = torch.nn.Linear(2, 2, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        optimizer.state[parameter]["master"] = parameter.detach().float() + 1e-4
    kept = [entry["master"].clone() for entry in optimizer.state.values()]
    state = hvd.elastic.TorchState(model, optimizer)
    state.commit()
    for entry in optimizer.state.values():
        entry["master"] += 1
    state.restore()
    after = [entry["master"] for entry in optimizer.state.values()]
    assert all(map(torch.equal, after, kept)) and after[0].dtype == torch.float32
    # In an optimizer that has no state yet, too.
    optimizer.state.clear()
    state.restore()
    after = [entry["master"] for entry in optimizer.state.values()]
    assert all(map(torch.equal, after, kept)) and after[0].dtype == torch.float32


def check_tied_weights_are_committed_once(rank, size):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 64, bias=False))
    model[1].weight = model[0].weight
    state = hvd.elastic.TorchState(model)
    assert [size for _, size in state._payload().buffers] == [64 * 64 * 4]
    before = model[0].weight.detach().clone()
    state.commit()
    with torch.no_grad():
        model[0].weight.add_(1)
    state.restore()
    assert model[1].weight is model[0].weight and torch.equal(model[0].weight, before)


def check_views_of_one_tensor_come_back_apart(rank, size):
    """Each with its own values; no memory of one is that of another, nor of the tensors before."""
    whole = torch.arange(6.0)
    state = hvd.elastic.TorchState(whole=whole, part=whole[1:3], nested={"row": whole.view(2, 3)[1]})
    # Once from the copy of this process, once from the agent's memory.
    for keep in (state.save, state.commit):
        keep()
        whole.fill_(9)
        state.restore()
        assert (state.whole.tolist(), state.part.tolist()) == ([0, 1, 2, 3, 4, 5], [1, 2])
        assert state.nested["row"].tolist() == [3, 4, 5]
        state.part.fill_(7)
        assert state.whole.tolist() == [0, 1, 2, 3, 4, 5]
        state.whole.fill_(8)
        assert state.part.tolist() == [7, 7] and state.nested["row"].tolist() == [3, 4, 5]
        state.restore()


def check_a_new_round_has_no_gradients_of_the_last(rank, size):
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        model.named_parameters(),
        backward_passes_per_step=2,
    )
    state = hvd.elastic.TorchState(model, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    state.reset()
    assert all(parameter.grad is None for parameter in model.parameters())
