"""How gradients travel: as they are, or as 16-bit floats."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """What a compression of your own implements; both are static methods."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what :meth:`decompress` needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        """The tensor in its own type again."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor


class FP16Compressor(Compressor):
    """32- and 64-bit floats travel as 16-bit ones (IEEE half: beyond 65,504 they are infinite)."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if tensor.dtype in (torch.float32, torch.float64):
            return tensor.to(torch.float16), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, context: Any) -> torch.Tensor:
        return tensor if context is None else tensor.to(context)


class Compression:
    """The compressions: ``Compression.none`` and ``Compression.fp16``."""

    none = NoneCompressor
    fp16 = FP16Compressor
