"""The shape of a mesh follows from its number of workers."""

import pytest

from elasticrun.errors import StateError
from elasticrun.torch.elastic.sharded.mesh_shape import mesh_shape, next_shard


def test_one_dimension_has_the_rest() -> None:
    assert mesh_shape(("shard",), 5) == ([5], ["shard"])
    assert mesh_shape({"replicate": None, "shard": 4}, 8) == ([2, 4], ["replicate", "shard"])
    assert mesh_shape({"data": 2, "tensor": 2}, 4) == ([2, 2], ["data", "tensor"])


def test_shards_are_larger_in_the_next_smaller_mesh() -> None:
    assert next_shard(("shard",), 8, 8, 700) == 800
    assert next_shard({"shard": None, "tensor": 2}, 8, 8, 600) == 800
    assert next_shard({"replicate": 2, "shard": None}, 8, 4, 600) == 800
    assert next_shard(("shard",), 1, 1, 700) == 700
    # As many shards at any size.
    assert next_shard(("replicate",), 8, 1, 700) == 700
    assert next_shard({"replicate": None, "shard": 4}, 8, 4, 700) == 700
    assert next_shard({"data": 2, "tensor": 2}, 4, 4, 700) == 700


@pytest.mark.parametrize(
    ("dimensions", "size", "message"),
    [
        ((), 4, "at least one name"),
        (("shard", "shard"), 4, "each once"),
        (("replicate", "shard"), 4, "give the others their sizes"),
        ({"shard": 0}, 4, "at least 1 worker"),
        ({"data": None, "tensor": 2}, 7, r"cannot have 7 workers: any multiple of 2 works"),
        ({"data": 2, "tensor": 2}, 6, r"cannot have 6 workers: only 4 works"),
    ],
)
def test_a_mesh_that_cannot_be_says_what_works(dimensions: object, size: int, message: str) -> None:
    with pytest.raises(StateError, match=message):
        mesh_shape(dimensions, size)  # type: ignore[arg-type]
