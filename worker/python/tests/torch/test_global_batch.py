"""A global batch has each row once at any number of workers."""

import pytest
import torch

from elasticrun.torch.elastic import GlobalBatch


@pytest.mark.parametrize("rows", [1, 7, 12, 100])
@pytest.mark.parametrize("shares", [1, 2, 3, 8])
@pytest.mark.parametrize("micro", [None, 1, 4, 200])
def test_each_row_is_in_one_micro_batch(rows: int, shares: int, micro: int | None) -> None:
    batch = GlobalBatch(rows, micro)
    parts = [list(batch.of(share, shares)) for share in range(shares)]
    assert sorted(row for share in parts for part in share for row in part.rows) == list(range(rows))
    assert len({len(share) for share in parts}) == 1, "workers would call different numbers of collectives"
    assert all(len(part.rows) <= batch.micro for share in parts for part in share)
    assert all([part.is_last for part in share] == [False] * (len(share) - 1) + [True] for share in parts)
    # The mean of the workers is the mean of all rows.
    assert sum(part.weight for share in parts for part in share) == pytest.approx(shares)


def test_the_gradient_is_that_of_one_worker() -> None:
    inputs = torch.randn(10, 3, generator=torch.Generator().manual_seed(1))
    weight = torch.ones(3, requires_grad=True)
    inputs.mv(weight).square().mean().backward()
    expected = weight.grad
    for shares in (1, 3, 4):
        other = torch.ones(3, requires_grad=True)
        for share in range(shares):
            for micro in GlobalBatch(10, 2).of(share, shares):
                if micro.rows:
                    loss = inputs[list(micro.rows)].mv(other).square().mean()
                    (loss * micro.weight / shares).backward()
        assert other.grad is not None and expected is not None
        assert torch.allclose(other.grad, expected, rtol=1e-6)


@pytest.mark.parametrize(("rows", "micro"), [(0, None), (4, 0)])
def test_a_batch_has_at_least_one_row(rows: int, micro: int | None) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        GlobalBatch(rows, micro)
