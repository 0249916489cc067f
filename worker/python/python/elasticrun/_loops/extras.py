"""What a missing framework is reported as."""

from __future__ import annotations

import importlib.metadata
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
            f"elasticrun.{extra} needs {missing}, which is not installed: pip install 'elasticrun[{extra}]'",
            name=missing,
        ) from error


def require_methods(package: str, owner: type, *names: str) -> None:
    """Checks that a class of a framework has the methods that are replaced.

    Raises:
        ImportError: it has not, so this is another version of the framework than those that are supported.
    """
    missing = [name for name in names if not hasattr(owner, name)]
    if missing:
        raise ImportError(
            f"elasticrun.{package} does not support {package} {importlib.metadata.version(package)}: its {owner.__name__}"
            f" has no {missing[0]}. Install the versions of pip install 'elasticrun[{package}]'"
        )
