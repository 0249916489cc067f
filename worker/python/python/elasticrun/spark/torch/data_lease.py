"""The temporary data of a fit in its store: it is deleted behind the fit, or by a later fit if the program was killed.

A file ``data/ID.alive`` beside the directory ``data/ID`` is written again every minute while the program lives. A fit deletes
directories whose file is older than a day. So a fit that runs at the same time keeps its data.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql import SparkSession

from .. import store
from ..error_text import error_text
from ..job import report
from ..poller import Poller
from ..store import Store

__all__ = ["DataLease", "abandoned"]

_ALIVE = ".alive"
#: Seconds between two writes of the file.
_INTERVAL = 60.0
#: Age of the file in milliseconds, above which its program is taken for dead. Spark programs can be suspended for hours.
_MAX_AGE = 24 * 60 * 60 * 1000


class DataLease(Poller):
    """A new directory in a store, which exists at most as long as this object is entered.

    Args:
        session: session whose file systems are used.
        to: store of the directory.

    Attributes:
        path: the directory, as Spark names it. It does not exist yet.
    """

    def __init__(self, session: SparkSession, to: Store) -> None:
        self._session = session
        self._to = to
        self._id = uuid.uuid4().hex
        self.path = to.path("data", self._id)
        super().__init__("data-lease", _INTERVAL)

    def __enter__(self) -> DataLease:
        store.write(self._session, self.path + _ALIVE, b"")
        try:
            for name in abandoned(store.list_times(self._session, self._to.path("data")), self._id):
                self._delete(name)
        except Exception as error:  # Of py4j and of any file system; this fit needs none of it
            report(f"warning: data of earlier fits was not deleted: {error_text(error)}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        try:
            self._delete(self._id)
        except Exception as error:  # Of py4j and of any file system; the trained model needs none of it
            report(
                f"warning: the temporary data of this fit, {self.path}, was not deleted: {error_text(error)}."
                " A later fit with this store deletes it after a day"
            )

    def poll(self) -> float:
        """Shows that the program lives."""
        try:
            store.write(self._session, self.path + _ALIVE, b"")
        except Exception:  # Of py4j and of any file system; the next poll tries again
            pass
        return _INTERVAL

    def _delete(self, name: str) -> None:
        path = self._to.path("data", name)
        # The file comes last, so that an interrupted deletion is repeated.
        store.delete(self._session, path)
        store.delete(self._session, path + _ALIVE)


def abandoned(times: Mapping[str, int], own: str) -> list[str]:
    """The directories of programs that are taken for dead.

    Args:
        times: names in the directory of all data, with times of modification in milliseconds.
        own: the directory of this program, whose file has just been written by the clock of the store.
    """
    now = times[own + _ALIVE]
    return [name.removesuffix(_ALIVE) for name, at in times.items() if name.endswith(_ALIVE) and now - at > _MAX_AGE]
