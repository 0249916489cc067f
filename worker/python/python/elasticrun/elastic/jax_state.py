"""A state of JAX pytrees."""

from __future__ import annotations

from .object_state import ObjectState

__all__ = ["JaxState"]


class JaxState(ObjectState):
    """Pytrees by name: parameters, the state of an optimizer, keys of random numbers.

        state = JaxState(params=params, opt_state=opt_state, step=0)

    JAX arrays never change, so a commit copies them from their devices and nothing else. Restored arrays are
    new ones, on the devices on which those in their place are.

    Raises:
        ImportError: JAX is not installed.
        StateError: as :class:`ObjectState`; also for an array that is sharded over several hosts.
    """

    # Not to fill them, but to see where they are placed.
    _in_place = True

    def __init__(self, **trees: object) -> None:
        try:
            import jax  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
        except ImportError:
            raise ImportError("JaxState needs JAX: pip install jax") from None
        super().__init__(**trees)
