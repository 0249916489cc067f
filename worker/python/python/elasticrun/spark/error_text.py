"""Extracts the relevant line from exceptions of py4j and Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["SlotFailure", "UnusableExecutorError", "error_text", "slot_failure"]

#: The first line of a Python traceback.
_TRACEBACK = "Traceback (most recent call last):"


class UnusableExecutorError(RuntimeError):
    """No task of the job can run on this executor, however often it is tried."""


#: The beginning of that exception in the text of a traceback.
_UNUSABLE = f"{UnusableExecutorError.__module__}.{UnusableExecutorError.__qualname__}: "


@dataclass(frozen=True)
class SlotFailure:
    """Why a slot was lost, in one line or in the last lines of its service, and whether its executor can run no task."""

    text: str
    permanent: bool = False


def slot_failure(error: Exception) -> SlotFailure:
    """The failure of a slot whose Spark job raised ``error``."""
    text = error_text(error)
    missing = _lacks_package(error)
    return SlotFailure(text.removeprefix(_UNUSABLE), missing or text.startswith(_UNUSABLE))


def error_text(error: Exception) -> str:
    """The reason for a failed call into Spark, in one line: the message of the task or of Java, without stack traces."""
    text = str(error)
    if _lacks_package(error):
        return "the Python of the executors has no elasticrun: install it there, or deliver it by --archives"
    java: Any = getattr(error, "java_exception", None)
    if java is not None:
        text = java.getMessage() or java.toString()
    # The exception of a task follows its last traceback, at the beginning of a line.
    _, _, raised = text.rpartition(_TRACEBACK)
    lines = [line for line in raised.splitlines() if line[:1].strip()]
    lines = lines or [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].removeprefix("RuntimeError: elasticrun: ") if lines else type(error).__name__


def _lacks_package(error: Exception) -> bool:
    return "No module named 'elasticrun'" in str(error)
