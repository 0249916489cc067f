"""How gradients travel, where it is the same in all frameworks: what a compression is, and none."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Compressor", "NoneCompressor"]

T = TypeVar("T")


class Compressor(Generic[T]):
    """What a compression of your own implements; both are static methods."""

    @staticmethod
    def compress(tensor: T) -> tuple[T, Any]:
        """The tensor to send, and what :meth:`decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: T, ctx: Any) -> T:
        """The tensor in its own type again."""
        raise NotImplementedError


class NoneCompressor(Compressor[T]):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: T) -> tuple[T, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: T, ctx: Any) -> T:
        return tensor
