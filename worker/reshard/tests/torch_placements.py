"""Writes torch_placements.txt: what torch's DTensor gives to each coordinate of a mesh.

Run it with torch 2.15, from this directory: python torch_placements.py > torch_placements.txt
Each line is a case: shape of the mesh; shape of the tensor; placements; then for each coordinate, in row-major order, the
shape of its local tensor and its elements by their index in the whole tensor.
"""

import itertools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard
from torch.testing._internal.distributed.fake_pg import FakeStore


def axes(dims: int) -> list:
    """All placements that are tried for one dimension of a mesh."""
    found: list = [Replicate()]
    for dim in range(dims):
        found.append(Shard(dim))
        found.extend(_StridedShard(dim, split_factor=factor) for factor in (2, 3))
    return found


def text(placement) -> str:
    """A placement as the test reads it."""
    if isinstance(placement, _StridedShard):
        return f"T{placement.dim}/{placement.split_factor}"
    return f"S{placement.dim}" if isinstance(placement, Shard) else "R"


def cases():
    """Meshes, shapes and placements."""
    for mesh in [(1,), (2,), (3,), (5,)]:
        for shape in [(0,), (1,), (4,), (7,), (12,), (5, 3)]:
            yield from ((mesh, shape, (axis,)) for axis in axes(len(shape)))
    for mesh in [(2, 2), (2, 3), (3, 2)]:
        for shape in [(3,), (8,), (11,), (5, 4)]:
            yield from ((mesh, shape, pair) for pair in itertools.product(axes(len(shape)), repeat=2))
    for placements in itertools.product([Replicate(), Shard(0), _StridedShard(0, split_factor=2)], repeat=3):
        yield (2, 2, 2), (13,), placements


def main() -> None:
    """Prints one line for each case."""
    found = {}
    for world in sorted({torch.Size(mesh).numel() for mesh, _, _ in cases()}):
        for rank in range(world):
            dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
            for mesh_shape, shape, placements in cases():
                if torch.Size(mesh_shape).numel() != world:
                    continue
                mesh = init_device_mesh("cpu", mesh_shape)
                whole = torch.arange(torch.Size(shape).numel()).reshape(shape)
                local = distribute_tensor(whole, mesh, placements, src_data_rank=None).to_local()
                found.setdefault((mesh_shape, shape, placements), []).append(
                    f"{'x'.join(map(str, local.shape))}:{','.join(map(str, local.flatten().tolist()))}"
                )
            dist.destroy_process_group()
    for (mesh_shape, shape, placements), locals_ in found.items():
        numbers = ["x".join(map(str, numbers)) for numbers in (mesh_shape, shape)]
        print(*numbers, "+".join(map(text, placements)), *locals_)


if __name__ == "__main__":
    main()
