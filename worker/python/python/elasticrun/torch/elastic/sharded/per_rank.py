"""Values of a sharded state that differ between workers, such as the states of random generators."""

from __future__ import annotations

import hashlib
import pickle
import random
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch


class PerRank(Protocol):
    """A value that each worker has for itself."""

    def state_dict(self) -> Any:
        """What a commit has of it. It can be pickled."""

    def load_state_dict(self, state: Any) -> object:
        """Takes what a commit has of it."""

    def derive(self, seed: int) -> None:
        """Makes it anew in a worker that has no value of its own.

        Args:
            seed: the same in all workers that read the same rows, and another one in each round.
        """


class RandomGenerators:
    """The random generators of torch (CPU, and this worker's CUDA device), NumPy's global one and Python's.

    ::

        state = ShardedState(build, per_rank={"rng": RandomGenerators(seed=17)}, step=0)

    Steps that are done again after a failure then draw the same numbers, as long as the number of workers stays the same.
    With another number of workers, generators start from the seed, the commit and the share of the rows.

    Args:
        seed: another one gives other numbers.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def state_dict(self) -> dict[str, Any]:
        """The states of the generators."""
        states = {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the states of the generators."""
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["python"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])

    def derive(self, seed: int) -> None:
        """Seeds the generators."""
        seed = mixed(self.seed, seed)
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)


class Place(NamedTuple):
    """What a worker has of rows and model. Workers with equal places in two rounds do the same."""

    data_rank: int
    data_size: int
    shard: int
    shards: int


#: Number of commits of which a worker keeps its own values: its newest ones, and those that hosts copy.
_KEPT = 8


class PerRankValues:
    """The values of a worker, and what it had of them in its last commits.

    Args:
        values: by name.
    """

    def __init__(self, values: Mapping[str, PerRank]) -> None:
        self._values = dict(values)
        #: What :meth:`save` returned, by commit.
        self._kept: dict[str, bytes] = {}

    def save(self, place: Place) -> bytes | None:
        """What the shard of a worker in this place has of them. None if there are no values."""
        if not self._values:
            return None
        states = {name: value.state_dict() for name, value in self._values.items()}
        return pickle.dumps((place, states), protocol=5)

    def committed(self, commit: tuple[int, int, int], saved: bytes | None) -> None:
        """Notes which commit has what :meth:`save` returned."""
        if saved is not None:
            self._kept[".".join(map(str, commit))] = saved
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]

    def restore(self, stored: bytes | None, commit: str, place: Place) -> None:
        """Gives the values what a worker in this place had in a commit, or makes them anew.

        Args:
            stored: what memory of this host has for the shard, if its layout is the same. It may be of a worker that had
                other rows.
            commit: id of the commit. Empty if there is none.
            place: of this worker in this round.
        """
        states: dict[str, Any] = {}
        for saved in (self._kept.get(commit), stored):
            if saved is not None:
                was, saved_states = pickle.loads(saved)
                if was == place:
                    states = saved_states
                    break
        for name, value in self._values.items():
            if name in states:
                value.load_state_dict(states[name])
            else:
                value.derive(mixed(commit, place.data_rank, place.data_size))


def mixed(*parts: object) -> int:
    """A seed of 63 bits, which depends on all parts."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
