"""Data sets of the names that scripts use, made of small digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import digits
import numpy as np


class _Digits:
    """Pairs of an image, transformed, and a label."""

    def __init__(self, train: bool, transform: Callable[[Any], Any] | None) -> None:
        self._images, self._labels = digits.split(train)
        self._transform = transform or (lambda image: image)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(self._shaped(self._images[index])), int(self._labels[index])

    def _shaped(self, image: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class MNIST(_Digits):
    """Grey images of 28 x 28: each pixel of a digit is nine, inside a margin of two."""

    def __init__(
        self,
        root: str,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(train, transform)

    def _shaped(self, image: np.ndarray) -> np.ndarray:
        return np.pad(image.repeat(3, axis=0).repeat(3, axis=1), 2)[:, :, np.newaxis]


class CIFAR10(_Digits):
    """Images of 32 x 32 in three equal colours: each pixel of a digit is sixteen."""

    def __init__(
        self,
        root: str,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        super().__init__(train, transform)

    def _shaped(self, image: np.ndarray) -> np.ndarray:
        return np.repeat(image.repeat(4, axis=0).repeat(4, axis=1)[:, :, np.newaxis], 3, axis=2)
