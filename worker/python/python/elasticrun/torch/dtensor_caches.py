"""Drops what torch keeps of the meshes of a round that is over.

A DeviceMesh belongs to the groups of its round, but two meshes with the same ranks and names are equal, whatever their groups.
Caches of DTensor have meshes in their keys and results. A tensor of this round can therefore get the mesh of an earlier
round from a cache, with groups that are gone or that are others now. Caches also keep the groups alive.
:func:`end_round` clears these caches.

One of them, the cache of sharding propagation, takes milliseconds to fill for each parameter and operation. It is kept if all
meshes of the process are registered (:func:`keep`) or slices of registered ones. The owner of a registered mesh gives it
the groups of each new round (:func:`revive`), so that what the cache says about the mesh is right again.

Only this module uses private parts of DTensor and DeviceMesh. Releases of torch differ in them, so each is looked up by name. What
the program has not imported has no caches, and is not imported here.

Not covered: torch.compile, symmetric memory, and the sharding propagation of threads other than the caller's. torch has one cache
for each thread, and autograd has a thread for each GPU.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

#: Attributes through which a mesh refers to groups: their names, the groups, and meshes with groups of their own.
_GROUP_NAMES = ("_dim_group_names", "_dim_group_infos")
_GROUP_TABLES = ("_pg_registry", "_flatten_mapping")
#: The same in torch before 2.8, for all meshes.
_MESH_TABLES = ("child_to_root_mapping", "root_to_flatten_mapping", "flatten_name_to_root_dims")

_PROPAGATOR = "torch.distributed.tensor", "DTensor", "_op_dispatcher", "sharding_propagator"

#: Registered meshes by the address of the object: an equal mesh is not registered.
_kept: dict[int, weakref.ref[DeviceMesh]] = {}
#: The number of objects that the garbage collector does not list, when no cache had an unregistered mesh.
_frozen = 0


def end_round() -> None:
    """Drops all references of torch to the groups of the round, which are destroyed already."""
    meshes = _found("torch.distributed.device_mesh", "_mesh_resources")
    for table in ("mesh_stack", *_MESH_TABLES):
        _empty(getattr(meshes, table, None))
    if "torch.distributed.tensor" in sys.modules:
        _empty(_found("torch.distributed.tensor._redistribute", "_planner_cache"))
        _clear("torch.distributed.tensor._collective_utils", "MeshTopoInfo", "build_from_mesh", "cache_clear")
        random = _found("torch.distributed.tensor._random")
        if hasattr(random, "_rng_tracker"):
            # Workers that are new in the next round create theirs by a collective.
            random._rng_tracker = None
        if not _has_only_kept():
            forget_shardings()
    for mesh in _registered():
        _detach(mesh)


def forget_shardings() -> None:
    """Clears the caches of sharding propagation, whose results depend on the coordinate of this process in a mesh."""
    global _frozen
    _clear(*_PROPAGATOR, "propagate_op_sharding", "cache_clear")
    _clear(*_PROPAGATOR, "_propagate_tensor_meta_cached", "cache_clear")
    _clear("torch.distributed.tensor._redistribute", "_gen_transform_infos", "cache_clear")
    _clear("torch._C", "_clear_DTensor_sharding_propagator_cache")
    _frozen = gc.get_freeze_count()


def keep(mesh: DeviceMesh) -> None:
    """Registers a mesh of this round, to which the caller gives new groups (:func:`revive`) before it uses it in a later round."""
    global _frozen
    if not _kept:
        _frozen = gc.get_freeze_count()
    key = id(mesh)
    _kept[key] = weakref.ref(mesh, lambda _: _forget(key))


def revive(mesh: DeviceMesh, new: DeviceMesh) -> bool:
    """Gives ``mesh``, which is registered, and slices of it the groups of ``new``, an equal mesh of this round.

    This process must have the same coordinate in both. Returns whether all groups of ``mesh`` are now those of ``new``. If
    not, this release of torch is unknown: use ``new``, and call :func:`forget_shardings`.
    """
    try:
        slices = [part for part in _meshes() if _root(part) is mesh] if mesh.ndim > 1 else []
        vars(mesh).update(vars(new))
        for part in slices:
            vars(part).update(vars(mesh[part.mesh_dim_names or ()]))
        pairs = [(mesh, new), *((part, new[part.mesh_dim_names or ()]) for part in slices)]
        return all(one.get_group(axis) is other.get_group(axis) for one, other in pairs for axis in range(one.ndim))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError):
        return False


def _has_only_kept() -> bool:
    """Whether all meshes of the process are registered, or slices of registered ones."""
    if not _kept or gc.get_freeze_count() > _frozen:
        return False
    return all(_is_registered(mesh) or _is_slice(mesh) for mesh in _meshes())


def _is_registered(mesh: DeviceMesh | None) -> bool:
    found = _kept.get(id(mesh))
    return found is not None and found() is mesh


def _is_slice(mesh: DeviceMesh) -> bool:
    """Whether the mesh has some dimensions of a registered mesh. Other parts, such as flattened ones, have groups of their own."""
    root = _root(mesh)
    return (
        root is not None and _is_registered(root) and {*(mesh.mesh_dim_names or ())} <= {*(root.mesh_dim_names or ())}
    )


def _root(mesh: DeviceMesh) -> DeviceMesh | None:
    """The mesh of which ``mesh`` is a part, if this release of torch knows it."""
    root: DeviceMesh | None = getattr(mesh, "_root_mesh", None)
    return root


def _meshes() -> list[DeviceMesh]:
    """All meshes of the process."""
    classes = {DeviceMesh, *DeviceMesh.__subclasses__()}
    return [one for one in gc.get_objects() if type(one) in classes]


def _registered() -> list[DeviceMesh]:
    return [mesh for mesh in (found() for found in list(_kept.values())) if mesh is not None]


def _forget(key: int) -> None:
    _kept.pop(key, None)


def _detach(mesh: DeviceMesh) -> None:
    """Takes the groups from ``mesh``. Its use is an error until it is revived."""
    attributes = vars(mesh)
    for name in _GROUP_NAMES:
        attributes.pop(name, None)
    for name in _GROUP_TABLES:
        if name in attributes:
            attributes[name] = {}


def _found(module: str, *names: str) -> Any:
    """An attribute of an attribute of a module, or None if the module is not imported or one of them is missing."""
    found: Any = sys.modules.get(module)
    for name in names:
        found = getattr(found, name, None)
    return found


def _clear(module: str, *names: str) -> None:
    function = _found(module, *names)
    if function is not None:
        function()


def _empty(container: Any) -> None:
    if container is not None:
        container.clear()
