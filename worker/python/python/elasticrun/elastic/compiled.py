"""What an error of a function that JAX compiled means: that a collective in it failed, or what it says.

JAX makes an error of its own of what a callback raises (``io_callback``, in which collectives of a compiled function
run). Of the original there is but the traceback, in its text.
"""

from __future__ import annotations

import re
import sys

from .. import errors

__all__ = ["judge"]

#: The last line of a traceback of one of ours.
_OURS = re.compile(rf"^(?:elasticrun\.errors\.)?({'|'.join(errors.__all__)}): (.*)$", re.MULTILINE)


def judge(error: Exception) -> Exception:
    """What a collective raised, if ``error`` is what JAX made of it; else ``error`` itself."""
    if not _of_jax(error):
        return error
    told = _OURS.findall(str(error))
    if not told:
        return error
    name, message = told[-1]
    kind: type[Exception] = getattr(errors, name)
    # Those that take more are raised by elasticrun.run, which is no collective.
    return error if issubclass(kind, errors.JobError) else kind(message)


def _of_jax(error: Exception) -> bool:
    jax = sys.modules.get("jax")
    kind = getattr(getattr(jax, "errors", None), "JaxRuntimeError", None)
    return kind is not None and isinstance(error, kind)
