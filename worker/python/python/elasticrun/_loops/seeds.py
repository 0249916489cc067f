"""Random numbers that depend on the place in the training, and not on what happened before."""

from __future__ import annotations

import hashlib
import random
import sys

import torch


def plant(*place: object) -> None:
    """Seeds the generators of Python, NumPy and torch from ``place``, such as the seed, the step and the rank.

    A worker that repeats a step, and one that takes the place of another, draw the same numbers as the first one did.
    """
    digest = hashlib.blake2b("/".join(map(str, place)).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    random.seed(seed)
    torch.manual_seed(seed % (1 << 63))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))
