"""The sampler, as torch's loaders know samplers."""

from __future__ import annotations

import torch

from elasticrun import sampler as _sampler


class ElasticSampler(_sampler.ElasticSampler, torch.utils.data.Sampler[int]):
    """See :class:`elasticrun.ElasticSampler`; it is a ``torch.utils.data.Sampler`` as well."""
