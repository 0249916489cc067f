"""Given files on the web and of the Hugging Face Hub, from a server of the test that redirects as the Hub does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import parquet

from elasticrun.data import ParquetDataset
from elasticrun.errors import DataError


class Web:
    """Two hosts: files by path, and a hub that redirects to them. Counts requests, and notes the authorization of each."""

    def __init__(self, files: Path) -> None:
        self.files = files
        #: The token without which the hub gives nothing.
        self.token: str | None = None
        self.requests: list[tuple[str, str | None]] = []
        self._servers: list[ThreadingHTTPServer] = []
        self.host = self._serve(self._file)
        self.hub = self._serve(self._redirect)

    def _serve(self, answer) -> str:
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                web.requests.append((self.path, self.headers.get("authorization")))
                status, headers, body = answer(self.path, self.headers)
                self.send_response(status)
                for name, value in {**headers, "content-length": str(headers.get("content-length", len(body)))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    def _file(self, path, headers):
        file = self.files / path.lstrip("/")
        if not file.is_file():
            return 404, {}, b""
        content, found = file.read_bytes(), {"etag": f'"{file.stat().st_mtime_ns}"', "accept-ranges": "bytes"}
        if "range" not in headers:
            return 200, found, content
        first, last = headers["range"].removeprefix("bytes=").split("-")
        body = content[int(first) : int(last) + 1]
        found["content-range"] = f"bytes {first}-{int(first) + len(body) - 1}/{len(content)}"
        return 206, found, body

    def _redirect(self, path, headers):
        if self.token and headers.get("authorization") != f"Bearer {self.token}":
            return 401, {}, b""
        prefix = "/datasets/owner/name/resolve/main/"
        if not path.startswith(prefix):
            return 404, {}, b""
        return 302, {"location": f"{self.host}/{path.removeprefix(prefix)}"}, b""

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    parquet.write(tmp_path / "files", rows=300, files=2)
    web = Web(tmp_path / "files")
    monkeypatch.setenv("HF_ENDPOINT", web.hub)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield web
    web.close()


def rows(paths: list[str], **options: object) -> list[int]:
    data = ParquetDataset(paths, batch_size=64, columns=["index"], **options)
    return sorted(index for batch in data for index in batch["index"].tolist())


def test_files_of_a_server_are_read(web):
    paths = [f"{web.host}/part-0.parquet", f"{web.host}/part-1.parquet"]
    assert rows(paths) == list(range(300))
    assert ParquetDataset(paths, batch_size=10).rows_at([299])["name"].tolist() == ["row 299"]


def test_files_of_the_hub_are_read_through_its_redirects(web):
    assert rows(["hf://datasets/owner/name/part-0.parquet"]) == list(range(150))


@pytest.mark.parametrize("given", ["variable", "option"])
def test_the_token_goes_to_the_hub_and_to_no_other_host(web, given, monkeypatch):
    web.token = "hf_hush"
    path = "hf://datasets/owner/name@main/part-0.parquet"
    with pytest.raises(DataError) as refused:
        rows([path])
    assert "part-0.parquet" in str(refused.value)
    if given == "variable":
        monkeypatch.setenv("HF_TOKEN", "hf_hush")
    options = {"token": "hf_hush"} if given == "option" else {}
    web.requests.clear()
    assert rows([path], storage_options=options) == list(range(150))
    for path, authorization in web.requests:
        assert authorization == ("Bearer hf_hush" if path.startswith("/datasets") else None), path


def test_what_is_not_one_file_is_named(web):
    for path in ("hf://datasets/owner/name", "hf://datasets/owner/name/", "hf://owner/name/part-0.parquet"):
        with pytest.raises(DataError, match=r"expected one file: hf://datasets/OWNER/NAME/FILE"):
            ParquetDataset(path, batch_size=1)
    with pytest.raises(DataError, match=r"other\.parquet"):
        ParquetDataset("hf://datasets/owner/name/other.parquet", batch_size=1)
    with pytest.raises(DataError, match=r"part-\*\.parquet"):
        ParquetDataset(f"{web.host}/part-*.parquet", batch_size=1)


def test_a_file_that_changes_is_an_error(web):
    data = ParquetDataset(f"{web.host}/part-0.parquet", batch_size=10)
    parquet.write(web.files, rows=280, files=2)
    with pytest.raises(DataError, match=r"part-0\.parquet.*changed"):
        list(data)
