"""The one line of what py4j and Spark raise that a person wants to read."""

from __future__ import annotations

from typing import Any

__all__ = ["reason"]

#: What Python says before the lines of a traceback.
_TRACEBACK = "Traceback (most recent call last):"


def reason(error: Exception) -> str:
    """Why a call into Spark failed, in one line: what the task or Java said, and not the pages around it."""
    text = str(error)
    if "No module named 'elasticrun'" in text:
        return "the Python of the executors has no elasticrun: install it there, or deliver it by --archives"
    java: Any = getattr(error, "java_exception", None)
    if java is not None:
        text = java.getMessage() or java.toString()
    # What a task raised stands behind its last traceback, at the beginning of a line.
    _, _, raised = text.rpartition(_TRACEBACK)
    lines = [line for line in raised.splitlines() if line[:1].strip()]
    lines = lines or [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("RuntimeError: elasticrun: ") if lines else type(error).__name__
