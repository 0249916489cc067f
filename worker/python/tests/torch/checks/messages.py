"""send, recv and their like between the ranks of the group of all."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist

import elasticrun.torch as hvd
from elasticrun import errors


def neighbours(rank, size):
    return (rank - 1) % size, (rank + 1) % size


def check_a_ring_that_sends_first(rank, size):
    """All ranks send before they receive, so only non-blocking calls complete."""
    before, after = neighbours(rank, size)
    received = torch.zeros(3)
    sent = dist.isend(torch.full((3,), float(rank)), after)
    dist.irecv(received, before).wait()
    sent.wait()
    assert received.tolist() == [float(before)] * 3


def check_a_ring_that_receives_first(rank, size):
    before, after = neighbours(rank, size)
    received = torch.zeros(100_000)
    work = dist.irecv(received, before)
    sent = dist.isend(torch.arange(100_000.0) + rank, after)
    assert work.wait() and sent.wait()
    assert torch.equal(received, torch.arange(100_000.0) + before)
    assert work.is_completed() and sent.is_completed()


def check_blocking_calls(rank, size):
    ball = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        dist.send(ball, 1)
        dist.recv(ball, size - 1)
        assert ball.item() == size - 1
    else:
        assert dist.recv(ball, rank - 1) == rank - 1
        ball += 1
        dist.send(ball, (rank + 1) % size)


def check_order_and_tags(rank, size):
    """Messages of a tag come in order, and tags are apart."""
    if rank == 0:
        works = [dist.isend(torch.tensor([float(n)]), 1, tag=n % 2) for n in range(10)]
        for work in works:
            work.wait()
    elif rank == 1:
        odd, even = torch.zeros(5, 1), torch.zeros(5, 1)
        for n in range(5):
            dist.recv(odd[n], 0, tag=1)
        for n in range(5):
            dist.recv(even[n], 0, tag=0)
        assert odd.flatten().tolist() == [1, 3, 5, 7, 9]
        assert even.flatten().tolist() == [0, 2, 4, 6, 8]


def check_a_batch(rank, size):
    before, after = neighbours(rank, size)
    one, other = torch.zeros(2), torch.zeros(2, dtype=torch.int16)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, one, before, tag=1),
            dist.P2POp(dist.irecv, other, after, tag=2),
            dist.P2POp(dist.isend, torch.full((2,), float(rank)), after, tag=1),
            dist.P2POp(dist.isend, torch.full((2,), rank, dtype=torch.int16), before, tag=2),
        ]
    )
    for work in works:
        work.wait()
    assert one.tolist() == [before] * 2
    assert other.tolist() == [after] * 2


def check_objects(rank, size):
    if rank == 0:
        dist.send_object_list([{"from": rank}, "words"], dst=size - 1)
    elif rank == size - 1:
        objects = [None, None]
        dist.recv_object_list(objects, src=0)
        assert objects == [{"from": 0}, "words"]


def check_memory_of_any_layout(rank, size):
    before, after = neighbours(rank, size)
    received = torch.zeros(4, 3).t()
    sent = dist.isend(torch.arange(12.0).view(4, 3).t(), after)
    dist.recv(received, before)
    sent.wait()
    assert torch.equal(received, torch.arange(12.0).view(4, 3).t())
    word = torch.zeros(2, dtype=torch.complex64)
    sent = dist.isend(torch.tensor([1j, 2]), after)
    dist.recv(word, before)
    sent.wait()
    assert word.tolist() == [1j, 2]


def check_messages_and_collectives_do_not_wait_for_each_other(rank, size):
    before, after = neighbours(rank, size)
    received, total = torch.zeros(1), torch.ones(1)
    work = dist.irecv(received, before)
    dist.all_reduce(total)
    sent = dist.isend(total * rank, after)
    work.wait()
    sent.wait()
    assert received.item() == size * before


def check_a_future(rank, size):
    before, after = neighbours(rank, size)
    received = torch.zeros(1)
    future = dist.irecv(received, before).get_future().then(lambda done: done.value()[0] + 1)
    sent = dist.isend(torch.full((1,), float(rank)), after)
    assert future.wait().item() == before + 1
    sent.wait()


def check_it_can_be_asked_whether_it_is_done(rank, size):
    before, after = neighbours(rank, size)
    received = torch.zeros(1)
    work = dist.irecv(received, before)
    assert not work.is_completed()
    dist.barrier()
    sent = dist.isend(torch.ones(1), after)
    until = time.monotonic() + 60
    while not work.is_completed():
        assert time.monotonic() < until
    assert received.item() == 1 and work.is_success()
    sent.wait()


def check_nobody_is_waited_for_longer_than_said(rank, size):
    """The two meet anew in this group, so there is nothing yet that could be broken by a late one."""
    group = dist.new_group(list(range(size)))
    if rank == 0:
        received = torch.zeros(1)
        work = dist.irecv(received, size - 1, group=group)
        with pytest.raises(errors.CollectiveTimeout, match=f"recv from {size - 1}"):
            work.wait(datetime.timedelta(milliseconds=50))
    dist.barrier()
    if rank == 0:
        work.wait()
        assert received.item() == 1
    elif rank == size - 1:
        dist.send(torch.ones(1), 0, group=group)


def check_a_default_group_that_is_made_again_meets_anew(rank, size):
    for _ in range(2):
        dist.destroy_process_group()
        hvd.init_process_group("elasticrun")
        check_a_ring_that_sends_first(rank, size)
