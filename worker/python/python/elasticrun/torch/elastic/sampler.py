"""The sampler as a torch sampler."""

from __future__ import annotations

import torch

from elasticrun import sampler as _sampler


class ElasticSampler(_sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """An :class:`elasticrun.ElasticSampler` that is also a ``torch.utils.data.Sampler``."""
