"""Classifies errors of functions that JAX compiled, in which a collective may have failed.

Collectives of a compiled function run in an ``io_callback``. JAX replaces an exception of the callback by its own, whose
text contains the traceback of the original.
"""

from __future__ import annotations

import re
import sys

from .. import errors

__all__ = ["classify"]

#: The last line of a traceback that ends with an exception of this package.
_LAST_LINE = re.compile(rf"^(?:elasticrun\.errors\.)?({'|'.join(errors.__all__)}): (.*)$", re.MULTILINE)


def classify(error: Exception) -> Exception:
    """The exception that a collective raised, if ``error`` is JAX's replacement for it; else ``error`` itself."""
    if not _is_jax_error(error):
        return error
    matches = _LAST_LINE.findall(str(error))
    if not matches:
        return error
    name, message = matches[-1]
    kind: type[Exception] = getattr(errors, name)
    # A JobError takes more arguments. elasticrun.run raises it, not a collective.
    return error if issubclass(kind, errors.JobError) else kind(message)


def _is_jax_error(error: Exception) -> bool:
    jax = sys.modules.get("jax")
    kind = getattr(getattr(jax, "errors", None), "JaxRuntimeError", None)
    return kind is not None and isinstance(error, kind)
