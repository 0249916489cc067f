"""Other formats are converted to Parquet with all of their rows, or nothing is left behind."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.images import png

from elasticrun.data import Image, Pad, ParquetDataset
from elasticrun.data.__main__ import main


def convert(*words: object, code: int = 0) -> None:
    assert main(["convert", *map(str, words)]) == code


def rows(path: Path) -> list[dict[str, object]]:
    return [row for file in sorted(path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def mds(
    directory: Path, columns: dict[str, tuple[str, int | None]], samples: list[list[bytes]], codec: str | None = None
) -> Path:
    """A data set of one shard, by the description of the format."""
    directory.mkdir()
    bodies = []
    for sample in samples:
        sizes = [
            struct.pack("<I", len(value))
            for value, (_, size) in zip(sample, columns.values(), strict=True)
            if size is None
        ]
        bodies.append(b"".join(sizes) + b"".join(sample))
    header = b"{}"
    ends = np.cumsum([4 + 4 * (len(bodies) + 1) + len(header), *map(len, bodies)]).astype("<u4")
    content = struct.pack("<I", len(bodies)) + ends.tobytes() + header + b"".join(bodies)
    raw = "shard.00000.mds"
    entry = {
        "format": "mds",
        "version": 2,
        "samples": len(samples),
        "column_names": list(columns),
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_sizes": [size for _, size in columns.values()],
        "raw_data": {"basename": raw},
        "zip_data": None,
        "compression": None,
    }
    if codec is None:
        (directory / raw).write_bytes(content)
    else:
        (directory / f"{raw}.zstd").write_bytes(pa.compress(content, codec, asbytes=True))
        entry |= {"zip_data": {"basename": f"{raw}.zstd"}, "compression": f"{codec}:7"}
    (directory / "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    return directory


@pytest.mark.parametrize(("suffix", "mode"), [(".tar", "w"), (".tar.gz", "w:gz")])
def test_samples_of_tar_files(tmp_path, suffix, mode):
    source = tmp_path / "source"
    source.mkdir()
    for shard in range(2):
        members = {}
        for index in range(5 * shard, 5 * shard + 5):
            members[f"train/{index:03d}.png"] = png(4, 4, (index, 0, 0))
            members[f"train/{index:03d}.cls"] = str(index % 3).encode()
            if index % 2:
                members[f"train/{index:03d}.seg.txt"] = "größe".encode()
        tar(source / f"shard-{shard}{suffix}", {"README": b"no sample", **members}, mode)
    convert(source, "--to", tmp_path / "out")
    found = rows(tmp_path / "out")
    assert [row["__key__"] for row in found] == [f"train/{index:03d}" for index in range(10)]
    assert [row["cls"] for row in found] == [index % 3 for index in range(10)]
    assert [row["seg.txt"] for row in found] == [None, "größe"] * 5
    data = ParquetDataset(
        tmp_path / "out", batch_size=10, shuffle=False, columns=["png", "cls"], forms={"png": Image((4, 4))}
    )
    (batch,) = data
    assert batch["png"][:, 0, 0, 0].tolist() == list(range(10))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_lines(tmp_path, suffix):
    lines = [
        {"tokens": list(range(index % 4)), "text": f"text {index}", "meta": {"lang": "de"}} for index in range(300)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path = tmp_path / f"rows.jsonl{suffix}"
    path.write_bytes(gzip.compress(text) if suffix else text)
    convert(path, "--to", tmp_path / "out", "--row-group", "2 KiB", "--file-size", "6 KiB")
    assert rows(tmp_path / "out") == lines
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) > 1 and pq.ParquetFile(files[0]).num_row_groups > 1
    data = ParquetDataset(tmp_path / "out", batch_size=300, forms={"tokens": Pad(0)})
    assert data.rows == 300 and next(iter(data))["tokens"].shape == (300, 3)


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_shards_of_mds(tmp_path, codec):
    columns = {
        "image": ("png", None),
        "label": ("int", 8),
        "text": ("str", None),
        "score": ("float32", 4),
        "tokens": ("ndarray:uint16:4", 8),
        "ragged": ("ndarray:int32", None),
        "more": ("json", None),
        "count": ("str_int", None),
    }
    samples = [
        [
            png(2, 2, (index, 0, 0)),
            struct.pack("<q", index),
            f"größe {index}".encode(),
            struct.pack("<f", index / 2),
            np.arange(index, index + 4, dtype="<u2").tobytes(),
            bytes([1 << 2, index + 1]) + np.arange(index + 1, dtype="<i4").tobytes(),
            json.dumps({"a": index}).encode(),
            str(index).encode(),
        ]
        for index in range(7)
    ]
    convert(mds(tmp_path / "source", columns, samples, codec), "--to", tmp_path / "out")
    for index, row in enumerate(rows(tmp_path / "out")):
        assert row == {
            "image": png(2, 2, (index, 0, 0)),
            "label": index,
            "text": f"größe {index}",
            "score": index / 2,
            "tokens": list(range(index, index + 4)),
            "ragged": list(range(index + 1)),
            "more": json.dumps({"a": index}),
            "count": index,
        }


@pytest.mark.parametrize("is_stream", [True, False])
def test_arrow_files(tmp_path, is_stream):
    table = pa.table({"index": range(100), "text": [f"text {index}" for index in range(100)]})
    source = tmp_path / "cache"
    source.mkdir()
    for part in range(2):
        make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
        with make(source / f"data-{part:05d}-of-00002.arrow", table.schema) as writer:
            writer.write_table(table.slice(50 * part, 50), max_chunksize=20)
    (source / "state.json").write_text("{}")
    convert(source, "--to", tmp_path / "out")
    assert rows(tmp_path / "out") == table.to_pylist()


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1, "b": "x"}\n')
    convert(path, "--to", tmp_path / "out", "--dry-run")
    assert capsys.readouterr().out.splitlines()[:2] == ["a: int64", "b: string"]
    assert sorted(tmp_path.iterdir()) == [path]


def test_sources_that_cannot_be_converted_are_named_and_nothing_is_left(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"a": 1}\n')
    (tmp_path / "x.bin").write_bytes(b"x")
    (tmp_path / "no.arrow").write_bytes(b"no arrow at all")
    (tmp_path / "broken.jsonl").write_text('{"a": 1}\n{"a": \n')
    (tmp_path / "null.jsonl").write_text('{"a": null}\n')
    (tmp_path / "empty.jsonl").write_text("")
    whole = tar(tmp_path / "whole.tar", {"a.txt": b"a" * 30_000, "b.txt": b"\xff"})
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:15_000])
    tar(tmp_path / "twice.tar", {"a.txt": b"1", "a.TXT": b"2"})
    pickled = mds(tmp_path / "pickled", {"thing": ("pkl", None)}, [[b"x"]])
    damaged = mds(tmp_path / "damaged", {"label": ("int", 8)}, [[struct.pack("<q", 1)]])
    shard = damaged / "shard.00000.mds"
    shard.write_bytes(shard.read_bytes()[:-3])
    (tmp_path / "several").mkdir()
    (tmp_path / "several" / "a.jsonl").write_text("{}")
    tar(tmp_path / "several" / "a.tar", {"a.txt": b"1"})
    before = sorted(tmp_path.rglob("*"))
    for source, why in [
        (tmp_path / "nowhere", "no such file or directory"),
        (tmp_path / "x.bin", "its format is unknown; expected .tar"),
        (tmp_path / "no.arrow", "is no Arrow file"),
        (tmp_path / "broken.jsonl", "JSON parse error"),
        (tmp_path / "null.jsonl", "all values of 'a' in the first rows are null: give --column a:TYPE"),
        (tmp_path / "empty.jsonl", "Empty JSON"),
        (tmp_path / "cut.tar", "is damaged"),
        (tmp_path / "whole.tar", "'txt' of sample 'b' is no string"),
        (tmp_path / "twice.tar", "sample 'a' has two members 'txt'"),
        (pickled, "column 'thing' is stored as 'pkl', which is not converted"),
        (damaged, "sample 0 is damaged"),
        (tmp_path / "several", "has files of several formats (jsonl, webdataset): choose one by --format"),
    ]:
        convert(source, "--to", tmp_path / "new", code=2)
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 1 and why in told[0], told
        assert sorted(tmp_path.rglob("*")) == before
    convert(lines, "--to", tmp_path / "out", code=2)
    assert "there already" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        convert(lines, "--to", tmp_path / "new", "--column", "a:nothing")


def test_columns_that_the_first_rows_do_not_show_need_a_type(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("elasticrun.data.convert.json_lines._BLOCK", 100)
    monkeypatch.setattr("elasticrun.data.convert.web_dataset._FIRST_SAMPLES", 2)
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"a": 1}\n' * 50 + '{"a": 1, "b": 2}\n' * 50)
    members = {f"{index}.txt": b"x" for index in range(5)} | {"9.txt": b"x", "9.jpg": b"y"}
    archive = tar(tmp_path / "rows.tar", members)
    numbers = tmp_path / "numbers.jsonl"
    numbers.write_text('{"a": 1}\n' * 50 + '{"a": 1.5}\n')
    convert(numbers, "--to", tmp_path / "out", code=2)
    assert "line 51, 'a'" in capsys.readouterr().err
    numbers.write_text('{"a": "' + 1000 * "x" + '"}\n')
    convert(numbers, "--to", tmp_path / "out", code=2)
    assert "has a line of more than" in capsys.readouterr().err
    for source, name, kind in [(lines, "b", "int64"), (archive, "jpg", "binary")]:
        convert(source, "--to", tmp_path / "out", code=2)
        assert f"{name!r}" in capsys.readouterr().err
        convert(source, "--to", tmp_path / f"out {name}", "--column", f"{name}:{kind}")
        found = [row[name] for row in rows(tmp_path / f"out {name}")]
        assert found[0] is None and found[-1] is not None


def test_an_interrupt_leaves_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for index in range(400_000):
            file.write(json.dumps({"index": index, "text": "x" * 200}) + "\n")
    words = [
        sys.executable,
        "-m",
        "elasticrun.data",
        "convert",
        str(path),
        "--to",
        str(tmp_path / "out"),
        "--row-group",
        "64 KiB",
    ]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".out.*.partial/part-*")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGINT)
        assert process.stderr is not None
        told = process.stderr.read()
        assert process.wait() == 130, told
    assert "interrupted" in told and sorted(tmp_path.iterdir()) == [path]
