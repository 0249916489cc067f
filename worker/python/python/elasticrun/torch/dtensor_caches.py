"""Drops what torch keeps of the meshes of a round that is over.

A DeviceMesh belongs to the groups of its round, but two meshes with the same ranks and names are equal, whatever their groups.
Caches of DTensor have meshes in their keys and results. A tensor of this round can therefore get the mesh of an earlier
round from a cache, with groups that are gone or that are others now. Caches also keep the groups alive.
:func:`end_round` clears these caches.

One of them, the cache of sharding propagation, takes milliseconds to fill for each parameter and operation. It is kept if all
meshes of the process are registered (:func:`keep`) or slices of registered ones. The owner of a registered mesh gives it
the groups of each new round (:func:`revive`), so that what the cache says about the mesh is right again. To find the
meshes, :func:`watch` replaces ``DeviceMesh.__new__``: a search in all objects takes half as long as a garbage collection, which is
too long for a recovery.

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

#: Meshes by the address of the object, since equal meshes differ here.
_Meshes = dict[int, "weakref.ref[DeviceMesh]"]
_registered: _Meshes = {}
#: All meshes of the process, once :func:`watch` was called.
_created: _Meshes | None = None


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
    for mesh in _alive(_registered if _created is None else _created):
        if _is_registered(mesh) or _is_slice(mesh):
            _detach(mesh)


def forget_shardings() -> None:
    """Clears the caches of sharding propagation, whose results depend on the coordinate of this process in a mesh."""
    _clear(*_PROPAGATOR, "propagate_op_sharding", "cache_clear")
    _clear(*_PROPAGATOR, "_propagate_tensor_meta_cached", "cache_clear")
    _clear("torch.distributed.tensor._redistribute", "_gen_transform_infos", "cache_clear")
    _clear("torch._C", "_clear_DTensor_sharding_propagator_cache")


def watch() -> None:
    """Starts to list the meshes of the process. Without it, no cache is kept. Further calls do nothing."""
    global _created
    if _created is not None or DeviceMesh.__new__ is not object.__new__:
        return
    created = _created = {}

    def create(cls: type[DeviceMesh], *_: object, **__: object) -> DeviceMesh:
        mesh = object.__new__(cls)
        _add(created, mesh)
        return mesh

    DeviceMesh.__new__ = staticmethod(create)  # type: ignore[assignment]
    for one in gc.get_objects():
        if type(one) is DeviceMesh:
            _add(created, one)


def keep(mesh: DeviceMesh) -> None:
    """Registers a mesh of this round, to which the caller gives new groups (:func:`revive`) before it uses it in a later round."""
    _add(_registered, mesh)


def revive(mesh: DeviceMesh, new: DeviceMesh) -> bool:
    """Gives ``mesh``, which is registered, and slices of it the groups of ``new``, an equal mesh of this round.

    This process must have the same coordinate in both. Returns whether all groups of ``mesh`` are now those of ``new``. If
    not, this release of torch is unknown: use ``new``, and call :func:`forget_shardings`.
    """
    try:
        vars(mesh).update(vars(new))
        # FSDP makes a slice for each parameter. Those with the same names are equal.
        parts: dict[tuple[str, ...], DeviceMesh] = {}
        for part in _alive(_created or {}):
            if _root(part) is mesh and part is not mesh:
                names = part.mesh_dim_names or ()
                if names not in parts:
                    parts[names] = mesh[names]
                vars(part).update(vars(parts[names]))
        pairs = [(mesh, new), *((part, new[names]) for names, part in parts.items())]
        return all(one.get_group(axis) is other.get_group(axis) for one, other in pairs for axis in range(one.ndim))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError):
        return False


def _has_only_kept() -> bool:
    """Whether all meshes of the process are registered, or slices of registered ones."""
    return _created is not None and all(_is_registered(mesh) or _is_slice(mesh) for mesh in _alive(_created))


def _is_registered(mesh: DeviceMesh) -> bool:
    found = _registered.get(id(mesh))
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


def _add(meshes: _Meshes, mesh: DeviceMesh) -> None:
    key = id(mesh)
    meshes[key] = weakref.ref(mesh, lambda _: _remove(meshes, key))


def _remove(meshes: _Meshes, key: int) -> None:
    meshes.pop(key, None)


def _alive(meshes: _Meshes) -> list[DeviceMesh]:
    return [mesh for mesh in (reference() for reference in list(meshes.values())) if mesh is not None]


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
