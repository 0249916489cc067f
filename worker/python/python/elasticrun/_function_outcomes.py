"""What the workers of a call have sent: results and exceptions, and what of both the caller gets."""

from __future__ import annotations

import pickle
from typing import Any

from ._function_call import Failure, Result
from .errors import JobError, JobStoppedError, MissingResultsError, WorkerTraceback

__all__ = ["Outcomes", "in_order"]


class Outcomes:
    """Results and the exception that counts. A message that comes twice counts once."""

    def __init__(self) -> None:
        self._results: dict[tuple[int, int], Result] = {}
        self._failure: Failure | None = None

    def add(self, message: Result | Failure) -> None:
        """Stores a message. Of the exceptions it keeps the first of the newest round."""
        if isinstance(message, Result):
            self._results[message.round, message.rank] = message
        elif self._failure is None or message.round > self._failure.round:
            self._failure = message

    def by_rank(self) -> list[Any]:
        """The return values of the members of the last round, by rank.

        Raises:
            MissingResultsError: a member returned no result, or one that cannot be read here.
        """
        return in_order(list(self._results.values()))

    def explain(self, error: JobError) -> None:
        """Adds to the error of the job the results that came, and the exception of the worker as its cause."""
        error.results, _ = _read(_of_newest_round(list(self._results.values())))
        # The user has stopped the job. An exception of a worker is not the reason.
        if self._failure is not None and not isinstance(error, JobStoppedError):
            error.__cause__ = _exception(self._failure)


def in_order(results: list[Result]) -> list[Any]:
    """The return values of the members of the newest round among ``results``, by rank.

    A process may have joined no round, because a script that it started has joined one instead. Then only its rank at the
    start is known, and the number of expected results is not. Such results are sorted by that rank.

    Raises:
        MissingResultsError: a member returned no result, or one that cannot be read here.
    """
    newest = _of_newest_round(results)
    values, errors = _read(newest)
    for rank, error in errors.items():
        raise MissingResultsError(
            f"the job succeeded, but the result of rank {rank} cannot be read here ({error}): return values of modules"
            " that the caller can import",
            values,
        ) from error
    if newest and newest[0].round == 0:
        return list(values.values())
    size = newest[0].size if newest else 0
    missing = [rank for rank in range(size) if rank not in values]
    if missing or not newest:
        raise MissingResultsError(
            f"the job succeeded, but no result came from rank(s) {missing or 'at all'}: did a worker end by itself?",
            values,
        )
    return [values[rank] for rank in range(size)]


def _of_newest_round(results: list[Result]) -> list[Result]:
    newest = max((result.round for result in results), default=0)
    return sorted((result for result in results if result.round == newest), key=lambda result: result.rank)


def _read(results: list[Result]) -> tuple[dict[int, Any], dict[int, Exception]]:
    values, errors = {}, {}
    for result in results:
        try:
            values[result.rank] = pickle.loads(result.value)
        except Exception as error:  # Of the user's classes and their modules, so of any type
            errors[result.rank] = error
    return values, errors


def _exception(failure: Failure) -> BaseException:
    """The exception of a worker, caused by its traceback. The traceback alone, if the exception cannot be read here."""
    text = WorkerTraceback(f"rank {failure.rank} of round {failure.round}:\n{failure.traceback}")
    if failure.error is None:
        return text
    try:
        error = pickle.loads(failure.error)
    except Exception:  # Of the user's classes, whose constructors may want other arguments
        return text
    if not isinstance(error, BaseException):
        return text
    error.__cause__ = text
    return error
