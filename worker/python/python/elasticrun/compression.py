"""Compression of gradients for transfer: the interface, and the compressor that changes nothing."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

__all__ = ["Compressor", "NoneCompressor"]

T = TypeVar("T")


class Compressor(Generic[T]):
    """Base of compressors; both methods are static."""

    @staticmethod
    def compress(tensor: T) -> tuple[T, Any]:
        """The tensor to send, and a context for :meth:`decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: T, ctx: Any) -> T:
        """The tensor in its original type."""
        raise NotImplementedError


class NoneCompressor(Compressor[T]):
    """Sends tensors unchanged."""

    @staticmethod
    def compress(tensor: T) -> tuple[T, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: T, ctx: Any) -> T:
        return tensor
