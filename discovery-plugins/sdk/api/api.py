#!/usr/bin/env python3
"""The public Rust interface of the plugin SDK as lines of text, compared with the recorded ones.

    api.py            compares; exit code 1 and the differences if something has changed
    api.py --record   writes api.txt; refused if a released version has other lines

rustdoc describes the crates as JSON, which is an unstable output of the stable compiler. RUSTC_BOOTSTRAP allows it, for
rustdoc only: cargo would compile the dependencies again if it had the variable. The format depends on the compiler, so
api.txt is recorded again when rust-toolchain.toml changes.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RECORDED = HERE / "api.txt"
#: The SDK, and the crate whose types it exports.
CRATES = ("elasticrun-hosts", "elasticrun-plugin-sdk")
#: The format of rustdoc that this script knows.
FORMAT = 57
#: Traits that the compiler implements for most types, and on which no plugin depends.
IMPLIED = ("Freeze", "RefUnwindSafe", "StructuralPartialEq", "Unpin", "UnsafeUnpin", "UnwindSafe")


def main() -> int:
    version = package_version()
    lines = [f"version {version}"]
    for crate in CRATES:
        lines += sorted(Api(document(crate)).lines())
    recorded = RECORDED.read_text().splitlines() if RECORDED.exists() else []
    if sys.argv[1:] == ["--record"]:
        return record(recorded, lines, version)
    if recorded[1:] == lines[1:]:
        return 0
    print(*difflib.unified_diff(recorded, lines, "recorded", "now", lineterm="", n=0), sep="\n")
    print("the interface of the plugin SDK has changed: see docs/releasing.md, then run `make sdk-api RECORD=1`")
    return 1


def record(recorded: list[str], lines: list[str], version: str) -> int:
    """Writes the lines. The interface of a released version never changes."""
    before = recorded[0].removeprefix("version ") if recorded else ""
    tags = subprocess.run(["git", "tag", "--list", f"v{before}"], cwd=ROOT, capture_output=True, text=True, check=True)
    removed = set(recorded[1:]) - set(lines[1:])
    if tags.stdout.strip() and recorded[1:] != lines[1:] and not allowed(before, version, bool(removed)):
        change = "removes or changes" if removed else "adds"
        print(
            f"version {before} is released, and this {change} lines: raise the version in Cargo.toml (now {version}) first"
        )
        return 1
    RECORDED.write_text("".join(f"{line}\n" for line in lines))
    return 0


def allowed(before: str, now: str, breaking: bool) -> bool:
    """Whether semantic versioning allows the change from one version to the other."""
    old, new = ([int(part) for part in version.split(".")] for version in (before, now))
    if not breaking:
        return new > old
    return new[0] > old[0] or (old[0] == 0 and new[:2] > old[:2])


def package_version() -> str:
    found = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    if not found:
        raise SystemExit("Cargo.toml: no version of the workspace")
    return found[1]


def document(crate: str) -> dict[str, Any]:
    """What rustdoc says about a crate."""
    with tempfile.TemporaryDirectory() as directory:
        wrapper = Path(directory) / "rustdoc"
        wrapper.write_text('#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc "$@"\n')
        wrapper.chmod(0o755)
        command = ["cargo", "rustdoc", "--locked", "-q", "-p", crate, "--lib"]
        options = ["--", "-Zunstable-options", "--output-format", "json"]
        subprocess.run(command + options, cwd=ROOT, env=os.environ | {"RUSTDOC": str(wrapper)}, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return load((target / "doc" / f"{crate.replace('-', '_')}.json").read_text())


def load(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    if found["format_version"] != FORMAT:
        raise SystemExit(
            f"rustdoc writes format {found['format_version']}, {Path(__file__).name} knows {FORMAT}: adapt it"
        )
    return found


class Api:
    """The public items of a crate."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._items = found["index"]
        self._root = found["root"]
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        root = self._items[str(self._root)]
        self._module(root["name"], root)
        return self._lines

    def _module(self, path: str, module: dict[str, Any]) -> None:
        for number in module["inner"]["module"]["items"]:
            item = self._items[str(number)]
            ((kind, inner),) = item["inner"].items()
            if kind != "use":
                self._item(f"{path}::{item['name']}", item)
                continue
            target = self._items.get(str(inner["id"]))
            if target is None:
                self._lines.append(f"use {inner['source']} as {path}::{inner['name']}")
            elif inner["is_glob"]:
                self._module(path, target)
            else:
                self._item(f"{path}::{inner['name']}", target)

    def _item(self, path: str, item: dict[str, Any]) -> None:
        ((kind, inner),) = item["inner"].items()
        marks = "".join(f"{mark} " for mark in map(attribute, item["attrs"]) if mark)
        if kind == "module":
            self._module(path, item)
        elif kind == "function":
            self._lines.append(marks + function(path, inner))
        elif kind == "constant":
            self._lines.append(f"const {path}: {type_of(inner['type'])} = {inner['const']['expr']}")
        elif kind == "type_alias":
            self._lines.append(f"type {path}{generics(inner['generics'])} = {type_of(inner['type'])}")
        elif kind == "macro":
            self._lines.append(f"macro {path}: {' '.join(inner.split())}")
        elif kind in ("struct", "enum", "union"):
            self._lines.append(f"{marks}{kind} {path}{generics(inner['generics'])}")
            self._parts(path, kind, inner)
            self._impls(path, inner["impls"])
        elif kind == "trait":
            limits = bounds(inner["bounds"])
            self._lines.append(f"{marks}trait {path}{generics(inner['generics'])}: {limits}")
            self._members(path, inner["items"])
        else:
            self._lines.append(f"{marks}{kind} {path}")

    def _parts(self, path: str, kind: str, inner: dict[str, Any]) -> None:
        if kind == "enum":
            for place, number in enumerate(inner["variants"]):
                variant = self._items[str(number)]
                shape = variant["inner"]["variant"]
                self._lines.append(f"variant {path}::{variant['name']} ({place}){discriminant(shape)}")
                self._fields(f"{path}::{variant['name']}", shape["kind"])
        else:
            self._fields(path, inner["kind"])

    def _fields(self, path: str, shape: Any) -> None:
        if not isinstance(shape, dict):
            return
        (content,) = shape.values()
        fields = content["fields"] if isinstance(content, dict) else content
        for place, number in enumerate(fields):
            if number is None:
                self._lines.append(f"field {path}.{place} is private")
                continue
            field = self._items[str(number)]
            self._lines.append(f"field {path}.{field['name']}: {type_of(field['inner']['struct_field'])}")
        if isinstance(content, dict) and content.get("has_stripped_fields"):
            self._lines.append(f"field {path} has private ones")

    def _impls(self, path: str, numbers: list[int]) -> None:
        for number in numbers:
            inner = self._items[str(number)]["inner"]["impl"]
            if inner["blanket_impl"] is not None or (inner["trait"] and inner["trait"]["path"] in IMPLIED):
                continue
            if inner["trait"] is None:
                self._members(path, inner["items"])
                continue
            sign = "!" if inner["is_negative"] else ""
            name = f"{sign}{inner['trait']['path']}{arguments(inner['trait']['args'])}"
            self._lines.append(f"impl{generics(inner['generics'])} {name} for {path}")

    def _members(self, path: str, numbers: list[int]) -> None:
        for number in numbers:
            item = self._items[str(number)]
            ((kind, inner),) = item["inner"].items()
            name = f"{path}::{item['name']}"
            if kind == "function":
                given = " { .. }" if inner["has_body"] else ""
                self._lines.append(function(name, inner) + given)
            elif kind == "assoc_const":
                given = "" if inner["value"] is None else f" = {inner['value']}"
                self._lines.append(f"const {name}: {type_of(inner['type'])}{given}")
            elif kind == "assoc_type":
                given = "" if inner["type"] is None else f" = {type_of(inner['type'])}"
                self._lines.append(f"type {name}: {bounds(inner['bounds'])}{given}")


def attribute(mark: Any) -> str:
    """An attribute that is part of the interface."""
    if mark == "non_exhaustive":
        return "#[non_exhaustive]"
    if isinstance(mark, dict) and "repr" in mark:
        return f"#[repr({mark['repr']['kind']})]"
    if isinstance(mark, dict) and "must_use" in mark:
        return "#[must_use]"
    return ""


def discriminant(shape: dict[str, Any]) -> str:
    return f" = {shape['discriminant']['value']}" if shape["discriminant"] else ""


def function(path: str, inner: dict[str, Any]) -> str:
    return f"{header(inner['header'])}fn {path}{generics(inner['generics'])}{signature(inner['sig'])}"


def header(found: dict[str, Any]) -> str:
    words = [word for word in ("const", "async", "unsafe") if found[f"is_{word}"]]
    abi = found["abi"]
    if abi != "Rust":
        words.append(f'extern "{abi if isinstance(abi, str) else next(iter(abi))}"')
    return "".join(f"{word} " for word in words)


def signature(found: dict[str, Any]) -> str:
    inputs = ", ".join(f"{name}: {type_of(kind)}" for name, kind in found["inputs"])
    output = f" -> {type_of(found['output'])}" if found["output"] else ""
    return f"({inputs}){output}"


def generics(found: dict[str, Any]) -> str:
    names = []
    for parameter in found["params"]:
        ((kind, inner),) = parameter["kind"].items()
        limits = ""
        if kind == "type" and inner["is_synthetic"]:
            # The type of a parameter `impl Trait`, which names it as well.
            continue
        if kind == "type":
            limits = bounds(inner["bounds"])
        elif kind == "const":
            limits = type_of(inner["type"])
        names.append(parameter["name"] + (f": {limits}" if limits else ""))
    where = stable(found["where_predicates"]) if found["where_predicates"] else ""
    return (f"<{', '.join(names)}>" if names else "") + (f" where {where}" if where else "")


def bounds(found: list[dict[str, Any]]) -> str:
    return " + ".join(
        each["outlives"]
        if "outlives" in each
        else {"none": "", "maybe": "?"}.get(each["trait_bound"]["modifier"], "~")
        + each["trait_bound"]["trait"]["path"]
        + arguments(each["trait_bound"]["trait"]["args"])
        for each in found
    )


def arguments(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    ((kind, inner),) = found.items()
    if kind == "parenthesized":
        inputs = ", ".join(map(type_of, inner["inputs"]))
        return f"({inputs})" + (f" -> {type_of(inner['output'])}" if inner["output"] else "")
    parts = []
    for each in inner["args"]:
        ((sort, value),) = each.items() if isinstance(each, dict) else ((each, each),)
        parts.append(type_of(value) if sort == "type" else value if sort == "lifetime" else stable(value))
    for each in inner["constraints"]:
        binding = each["binding"]
        if "equality" in binding and "type" in binding["equality"]:
            parts.append(f"{each['name']} = {type_of(binding['equality']['type'])}")
        elif "constraint" in binding:
            parts.append(f"{each['name']}: {bounds(binding['constraint'])}")
        else:
            parts.append(stable(each))
    return f"<{', '.join(parts)}>" if parts else ""


def type_of(found: Any) -> str:
    ((kind, inner),) = found.items()
    match kind:
        case "primitive" | "generic":
            return str(inner)
        case "resolved_path":
            return inner["path"] + arguments(inner["args"])
        case "borrowed_ref":
            words = [inner["lifetime"], "mut" if inner["is_mutable"] else None]
            return "&" + "".join(f"{word} " for word in words if word) + type_of(inner["type"])
        case "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {type_of(inner['type'])}"
        case "tuple":
            return f"({', '.join(map(type_of, inner))})"
        case "slice":
            return f"[{type_of(inner)}]"
        case "array":
            return f"[{type_of(inner['type'])}; {inner['len']}]"
        case "impl_trait":
            return f"impl {bounds(inner)}"
        case "function_pointer":
            return header(inner["header"]) + "fn" + signature(inner["sig"])
        case "qualified_path":
            return f"<{type_of(inner['self_type'])}>::{inner['name']}"
        case "dyn_trait":
            return "dyn " + " + ".join(
                each["trait"]["path"] + arguments(each["trait"]["args"]) for each in inner["traits"]
            )
        case _:
            return stable(found)


def stable(found: Any) -> str:
    """JSON without the numbers of items, which differ from build to build."""

    def clean(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: clean(value) for key, value in part.items() if key != "id"}
        return [clean(each) for each in part] if isinstance(part, list) else part

    return json.dumps(clean(found), sort_keys=True)


if __name__ == "__main__":
    sys.exit(main())
