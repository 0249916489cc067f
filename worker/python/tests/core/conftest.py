"""What tests of the core alone need."""

from __future__ import annotations

import base64
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticrun._rpc_identity import Identity

#: The arguments of openssl for a new key.
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets rank and size for what asks for nothing else, without a job."""
    from elasticrun import lifecycle

    def place(rank: int, size: int) -> None:
        monkeypatch.setattr(lifecycle, "rank", lambda: rank)
        monkeypatch.setattr(lifecycle, "size", lambda: size)

    return place


@pytest.fixture(scope="session")
def this_job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    """The identities of a job, by role."""
    return _issue(tmp_path_factory.mktemp("this"))


@pytest.fixture(scope="session")
def other_job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    """Those of another job."""
    return _issue(tmp_path_factory.mktemp("other"))


def _issue(folder: Path) -> dict[str, Identity]:
    root = ["-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=job", "-addext", "keyUsage=keyCertSign"]
    _openssl(folder, *root)
    return {role: _issue_one(folder, role) for role in ("caller", "worker", "agent")}


def _issue_one(folder: Path, role: str) -> Identity:
    name = f"subjectAltName=DNS:{role}.elasticrun"
    issued = ["-CA", "root.pem", "-CAkey", "root.key", "-subj", f"/CN={role}", "-addext", name]
    _openssl(folder, "-keyout", f"{role}.key", "-out", f"{role}.pem", *issued, "-addext", "basicConstraints=CA:FALSE")
    key = (folder / f"{role}.key").read_text().splitlines()[1:-1]
    authority, certificate = (
        ssl.PEM_cert_to_DER_cert((folder / f"{found}.pem").read_text()) for found in ("root", role)
    )
    return Identity(authority, certificate, base64.b64decode("".join(key)))


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", "req", "-x509", *_KEY, *arguments], cwd=folder, check=True, capture_output=True)
