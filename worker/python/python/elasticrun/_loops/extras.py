"""What a missing framework is reported as."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def explain_missing(extra: str, *modules: str) -> Iterator[None]:
    """Names the extra of this package to install if the module of that name, or one of ``modules``, cannot be imported.

    Raises:
        ImportError: in place of a ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in (extra, "torch", *modules):
            raise
        raise ImportError(
            f"elasticrun.{extra} needs {missing}, which is not installed: pip install 'elasticrun[{extra}]'", name=missing
        ) from error
