"""A stand-in for torchvision, with what Horovod's elastic examples take from it and no downloads."""

from . import datasets, models, transforms

__all__ = ["datasets", "models", "transforms"]
