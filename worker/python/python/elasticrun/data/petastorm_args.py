"""The arguments of Petastorm's readers that control how data is read: accepted, mapped, or refused by name."""

from __future__ import annotations

from typing import Any

__all__ = ["check"]

#: Accepted without effect: threads decode, one buffer of rows replaces queues, and processes exchange no data.
_WITHOUT_EFFECT = {
    "pyarrow_serialize",
    "results_queue_size",
    "zmq_copy_buffers",
    "convert_early_to_numpy",
    "shuffle_row_drop_partitions",
    "hdfs_driver",
    "cache_row_size_estimate",
    "cache_extra_settings",
    "use_background_thread",
}

#: Refused unless None or empty, with the alternative.
_REFUSED = {
    "storage_options": "credentials and endpoints come from the environment: AWS_..., GOOGLE_..., AZURE_...; ParquetDataset has"
    " storage_options with other names",
    "filesystem": "the reader opens paths, s3://, gs:// and az:// addresses itself",
}

_CACHES = (None, "null", "local-disk")
_POOLS = ("thread", "process", "dummy")


def check(others: dict[str, Any]) -> dict[str, Any]:
    """Translates the arguments to those of :class:`ParquetDataset`.

    Raises:
        TypeError: Petastorm has no such argument.
        ValueError: an argument is invalid or not supported.
    """
    others = dict(others)
    pool = others.pop("reader_pool_type", "thread")
    if pool not in _POOLS:
        raise ValueError(
            f"reader_pool_type={pool!r}: must be one of {', '.join(_POOLS)}; threads decode with any of them"
        )
    for name, instead in _REFUSED.items():
        if others.pop(name, None):
            raise ValueError(f"{name} is not supported: {instead}")
    cache, place, size = (others.pop(name, None) for name in ("cache_type", "cache_location", "cache_size_limit"))
    if cache not in _CACHES:
        raise ValueError(f"cache_type={cache!r}: must be None, 'null' or 'local-disk'")
    unknown = [name for name in others if name not in _WITHOUT_EFFECT]
    if unknown:
        raise TypeError(f"{unknown[0]} is not known: docs/migrate-from-petastorm.md has all arguments")
    if cache != "local-disk":
        return {}
    if place is None:
        raise ValueError("cache_type='local-disk' needs cache_location, a directory")
    return {"cache": place} if size is None else {"cache": place, "cache_size": size}
