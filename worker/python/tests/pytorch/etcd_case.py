"""A real etcd for the tests of a class."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import ClassVar

from support.etcd import running_etcd


class EtcdCase:
    """Mixed into a TestCase.

    Attributes:
        address: the ``etcd://`` address.
    """

    address: ClassVar[str]
    _etcd: ClassVar[contextlib.ExitStack]

    @classmethod
    def setUpClass(cls) -> None:
        cls._etcd = contextlib.ExitStack()
        folder = cls._etcd.enter_context(tempfile.TemporaryDirectory())
        cls.address = cls._etcd.enter_context(running_etcd(Path(folder))).address

    @classmethod
    def tearDownClass(cls) -> None:
        cls._etcd.close()
