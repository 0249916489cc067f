"""Transforms of images, which are arrays of height x width x channels here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self._transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self._transforms:
            image = transform(image)
        return image


class ToTensor:
    """Bytes to a tensor of channels x height x width, from 0 to 1."""

    def __call__(self, image: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(image.transpose(2, 0, 1) / np.float32(255))


class Normalize:
    """Takes a mean from each channel and divides by its deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self._mean = torch.tensor(mean).view(-1, 1, 1)
        self._std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - self._mean) / self._std


class RandomCrop:
    """A window of the image inside a margin."""

    def __init__(self, size: int, padding: int = 0) -> None:
        self._size = size
        self._padding = padding

    def __call__(self, image: np.ndarray) -> np.ndarray:
        margin = self._padding
        padded = np.pad(image, ((margin, margin), (margin, margin), (0, 0)))
        top, left = np.random.randint(0, padded.shape[0] - self._size + 1, 2)
        return padded[top : top + self._size, left : left + self._size]


class RandomHorizontalFlip:
    """Each second image is mirrored."""

    def __call__(self, image: np.ndarray) -> np.ndarray:
        return image[:, ::-1].copy() if np.random.rand() < 0.5 else image
