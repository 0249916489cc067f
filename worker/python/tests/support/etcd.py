"""A member of etcd on loopback, for tests."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jobs import TIMEOUT
from support.ports import free_port


class Etcd:
    """A cluster of one member.

    Attributes:
        address: its ``etcd://`` address.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self._process = process
        self._port = port
        self.address = f"etcd://127.0.0.1:{port}"

    def pause(self) -> None:
        """It answers nothing until :meth:`resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        assert self._process.poll() is None, "etcd has ended"
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health") as answer:
            return b'"true"' in answer.read()
        return False


@contextlib.contextmanager
def running_etcd(folder: Path) -> Iterator[Etcd]:
    """Runs etcd with its data in a folder. Skips the test if the program is not there."""
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed: apt-get install etcd-server")
    client, peer = free_port(), free_port()
    urls = (f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}")
    with (folder / "etcd.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(program, "--data-dir", folder / "etcd"),
                *("--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]),
                *("--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1]),
                *("--initial-cluster", f"default={urls[1]}"),
            ],
            stdout=log,
            stderr=log,
        )
    try:
        etcd = Etcd(process, client)
        deadline = time.monotonic() + TIMEOUT
        while not etcd.is_ready():
            assert time.monotonic() < deadline, "etcd is not ready"
            time.sleep(0.05)
        yield etcd
    finally:
        process.kill()
        process.wait()
