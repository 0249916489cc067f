"""A state of JAX pytrees."""

from __future__ import annotations

from .object_state import ObjectState

__all__ = ["JaxState"]


class JaxState(ObjectState):
    """Pytrees by name: parameters, the state of an optimizer, random keys.

        state = JaxState(params=params, opt_state=opt_state, step=0)

    JAX arrays are immutable, so a commit copies them from their devices once. Restored arrays are new, and are placed on the
    devices of the current ones.

    Raises:
        ImportError: JAX is not installed.
        StateError: as :class:`ObjectState`; also for an array that is sharded over several hosts.
    """

    # JAX arrays are not filled in place, but their coder needs the live arrays to find the devices.
    _in_place = True

    def __init__(self, **trees: object) -> None:
        try:
            import jax  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
        except ImportError:
            raise ImportError("JaxState needs JAX: pip install jax") from None
        super().__init__(**trees)
