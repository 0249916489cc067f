"""A shell with job control in a pseudo-terminal, as a user has it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from pathlib import Path

from .jobs import TIMEOUT


class Terminal:
    """An interactive bash on a new terminal. What it and its jobs print is read as it comes.

    Args:
        folder: where it begins, and keeps what was typed.
        env: more variables of its environment.
    """

    def __init__(self, folder: Path, **env: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
        self._text = ""
        self._next = 0
        self._changed = threading.Condition()
        self._ended = False
        # It becomes the leader of a session whose terminal this is, which is what job control needs.
        self.shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder,
            env={
                **os.environ,
                "TERM": "xterm",
                "HISTFILE": str(folder / "history"),
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",
                **env,
            },
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def type(self, keys: str) -> None:
        """Types ``keys``."""
        os.write(self._master, keys.encode())

    def until(self, pattern: str) -> re.Match[str]:
        """What is printed next that has ``pattern``."""
        with self._changed:
            while True:
                found = re.compile(pattern).search(self._text, self._next)
                if found:
                    self._next = found.end()
                    return found
                assert not self._ended, f"{pattern!r} was not printed:\n{self._text}"
                assert self._changed.wait(TIMEOUT), f"{pattern!r} was not printed yet:\n{self._text}"

    @property
    def text(self) -> str:
        """All that was printed so far."""
        return self._text

    def close(self) -> None:
        """Ends the shell, and its jobs by the hangup of their terminal."""
        if self.shell.poll() is None:
            self.shell.send_signal(signal.SIGHUP)
        self.shell.wait(TIMEOUT)
        # Until no process has the terminal open.
        self._reader.join(TIMEOUT)
        os.close(self._master)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while True:
            try:
                new = os.read(self._master, 65536)
            except OSError:
                # No process has the terminal open.
                new = b""
            with self._changed:
                self._text += new.decode(errors="replace")
                self._ended = not new
                self._changed.notify_all()
            if not new:
                return
