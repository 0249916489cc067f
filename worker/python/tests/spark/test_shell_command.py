"""Which files and modules ``elasticrun --spark`` copies for a command; no cluster is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from elasticrun.spark.shell_command import MAX_BYTES, file_size, local_modules, plan, runs_in_place, zip_modules

#: Files of a user's directory, with their sizes in bytes.
SIZES = {
    "train.py": 10,
    "sub/train.py": 10,
    "conf.json": 10,
    "python3": 10,
    "big.bin": MAX_BYTES + 1,
    "run.sh": 10,
    "program": MAX_BYTES + 1,
    ".venv/bin/python": 10,
    "/data/rows.txt": 10,
    "/home/u/train.py": 10,
}


def size(path: str) -> int | None:
    return SIZES.get(os.path.normpath(path))


def planned(*command: str) -> tuple[list[str], list[str], list[str]]:
    """The words for executors, the paths of copied files, and the words that are too large."""
    found = plan(command, size)
    return found.words, [os.path.relpath(file) for file in found.files], found.too_large


def words(*command: str) -> list[str]:
    return planned(*command)[0]


def test_only_tasks_of_a_local_master_run_in_place():
    assert all(map(runs_in_place, ("local", "local[*]", "local[2]", "local[2,3]")))
    assert not any(map(runs_in_place, ("local-cluster[2,1,512]", "spark://local:7077", "yarn", "k8s://local[2]")))


def test_an_interpreter_is_never_copied():
    assert planned("/venv/bin/python3.11", "train.py") == (["/venv/bin/python3.11", "./train.py"], ["train.py"], [])
    assert words("python3", "train.py") == ["python3", "./train.py"]
    assert words(".venv/bin/python", "train.py") == [os.path.abspath(".venv/bin/python"), "./train.py"]


def test_a_program_by_a_relative_path_is_copied():
    assert words("./run.sh") == ["./run.sh"]
    assert planned("./program", "x") == (["./program", "x"], ["program"], [])
    assert planned("/opt/program", "x") == (["/opt/program", "x"], [], [])


def test_the_script_is_copied_wherever_it_is():
    assert words("python3", "-u", "-W", "ignore", "sub/train.py") == ["python3", "-u", "-W", "ignore", "./train.py"]
    assert words("python3", "/home/u/train.py") == ["python3", "./train.py"]
    assert words("env", "A=1", "python", "/home/u/train.py") == ["env", "A=1", "python", "./train.py"]


def test_files_by_a_relative_path_are_copied_up_to_a_size():
    command = ["python3", "train.py", "conf.json", "/data/rows.txt", "big.bin", "other"]
    assert planned(*command) == (
        ["python3", "./train.py", "./conf.json", "/data/rows.txt", "big.bin", "other"],
        ["train.py", "conf.json"],
        ["big.bin"],
    )


def test_two_files_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"would both be ./train.py on the executors"):
        plan(["python3", "train.py", "sub/train.py"], size)
    assert words("python3", "train.py", "./train.py") == ["python3", "./train.py", "./train.py"]


def test_a_link_arrives_under_the_name_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train_2.py").touch()
    (tmp_path / "train.py").symlink_to("train_2.py")
    found = plan(["python3", "train.py"], file_size)
    assert (found.words, found.files) == (["python3", "./train_2.py"], [str(tmp_path / "train_2.py")])


def test_modules_beside_the_script_are_found(tmp_path: Path):
    texts = {
        "train.py": "import numpy, helper\nfrom package.part import x\ndef later():\n    import space.inner",
        "helper.py": "import second",
        "second.py": "import helper",
        "unused.py": "",
        "package/__init__.py": "",
        "package/part.py": "from . import other\nimport third",
        "package/deep/more.py": "",
        "space/inner.py": "not Python",
        "third.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "package" / "weights.bin").touch()
    found = plan(["python3", str(tmp_path / "train.py")], file_size)
    modules = local_modules(found.folder, found.imports)
    zip_modules(modules, found.folder, tmp_path / "out.zip")
    directories = ["package/", "package/deep/", "space/"]
    shipped = sorted(set(texts) - {"train.py", "unused.py"})
    assert zipfile.ZipFile(tmp_path / "out.zip").namelist() == directories + shipped


def test_a_package_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However many of its files import it."""
    package = tmp_path / "package"
    package.mkdir()
    for index in range(20):
        (package / f"part{index}.py").write_text("import package.part0, other")
    searched: list[Path] = []
    rglob = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda self, pattern: searched.append(self) or rglob(self, pattern))
    assert len(local_modules(tmp_path, ["package", "package"])) == 20
    assert searched == [package]


def test_packages_without_an_init_file_are_imported_from_the_archive(tmp_path: Path):
    for name in ("models/deep/net.py", "plain/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("found = True")
    modules = local_modules(tmp_path, ["models", "plain"])
    zip_modules(iter(modules), tmp_path, tmp_path / "out.zip")
    program = "import models.deep.net, plain; assert models.deep.net.found and plain.found"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd="/", env={"PYTHONPATH": str(tmp_path / "out.zip")}, capture_output=True
    )
    assert run.returncode == 0, run.stderr.decode()


def test_files_of_1970_are_shipped(tmp_path: Path):
    """As container images and archives have them."""
    module = tmp_path / "helper.py"
    module.touch()
    os.utime(module, (0, 0))
    zip_modules([module], tmp_path, tmp_path / "out.zip")
    assert zipfile.ZipFile(tmp_path / "out.zip").namelist() == ["helper.py"]


def test_modules_of_a_module_that_python_runs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("package/__init__.py", "package/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = plan(["python3", "-m", "package.train", "-c", "x"], file_size)
    assert found.words == ["python3", "-m", "package.train", "-c", "x"]
    assert [path.name for path in local_modules(found.folder, found.imports)] == ["__init__.py", "train.py"]
    assert plan(["python3", "-c", "import package"], file_size).imports == []
