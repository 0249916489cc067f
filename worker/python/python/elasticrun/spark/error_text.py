"""Extracts the relevant line from exceptions of py4j and Spark."""

from __future__ import annotations

from typing import Any

__all__ = ["error_text"]

#: The first line of a Python traceback.
_TRACEBACK = "Traceback (most recent call last):"


def error_text(error: Exception) -> str:
    """The reason for a failed call into Spark, in one line: the message of the task or of Java, without stack traces."""
    text = str(error)
    if "No module named 'elasticrun'" in text:
        return "the Python of the executors has no elasticrun: install it there, or deliver it by --archives"
    java: Any = getattr(error, "java_exception", None)
    if java is not None:
        text = java.getMessage() or java.toString()
    # The exception of a task follows its last traceback, at the beginning of a line.
    _, _, raised = text.rpartition(_TRACEBACK)
    lines = [line for line in raised.splitlines() if line[:1].strip()]
    lines = lines or [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("RuntimeError: elasticrun: ") if lines else type(error).__name__
