"""The arguments of Petastorm's readers that say how, and not what, is read: taken, mapped, or refused by name."""

from __future__ import annotations

from typing import Any

__all__ = ["check"]

#: Taken without effect: threads decode, one buffer of rows takes the place of queues, and nothing is sent between processes.
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

#: Refused unless they are None or empty, with what to do.
_REFUSED = {
    "storage_options": "credentials and endpoints come from the environment: AWS_..., GOOGLE_...",
    "filesystem": "the reader opens paths, s3:// and gs:// addresses itself",
}

_CACHES = (None, "null", "local-disk")
_POOLS = ("thread", "process", "dummy")


def check(others: dict[str, Any]) -> dict[str, Any]:
    """What the arguments mean for a :class:`ParquetDataset`.

    Raises:
        TypeError: an argument that Petastorm does not know either.
        ValueError: one that is not what it may be, or cannot be followed.
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
