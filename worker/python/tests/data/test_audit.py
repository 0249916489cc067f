"""Evaluation of audit logs."""

from __future__ import annotations

import json

import pytest

from elasticrun.data import audit


def write(directory, name, *lines):
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows(commit, epoch=0, **groups):
    return {"commit": commit, "epoch": epoch, "rows": {name[1:]: own for name, own in groups.items()}}


def test_what_a_later_round_has_thrown_away_is_void(tmp_path):
    write(
        tmp_path, "a",
        {"round": 1, "base": None}, rows("1.1.1", g0=[1, 2]), {"sealed": "1.1.1"}, rows("1.1.2", g0=[3]),
        {"round": 2, "base": "1.1.1"}, rows("1.2.1", g0=[3]), {"sealed": "1.2.1"},
    )  # fmt: skip
    seen = audit.read(tmp_path)
    assert (seen.valid, seen.void) == ({(1, 1, 1), (1, 2, 1)}, {(1, 1, 2)})
    assert seen.repeated() == [] and len(seen.rows[0]) == 3


def test_a_commit_counts_for_all_as_soon_as_one_has_made_it(tmp_path):
    write(tmp_path, "a", {"round": 1, "base": None}, rows("1.1.1", g0=[1]))
    write(tmp_path, "b", {"round": 1, "base": None}, rows("1.1.1", g0=[2]))
    assert not audit.read(tmp_path).rows
    write(tmp_path, "b", {"round": 1, "base": None}, rows("1.1.1", g0=[2]), {"sealed": "1.1.1"})
    assert set(audit.read(tmp_path).rows[0]) == {(0, 1), (0, 2)}


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    write(tmp_path, "a", {"round": 1, "base": None}, rows("1.1.1", g0=[1, 1]), {"sealed": "1.1.1"})
    assert audit.main([str(tmp_path)]) == 1
    assert "1 rows committed, 1 of them more than once" in capsys.readouterr().out
    (tmp_path / "b.jsonl").write_text("nonsense\n")
    assert audit.main([str(tmp_path)]) == 2
    assert "b.jsonl:1: not a line of an audit" in capsys.readouterr().err


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_epoch_that_is_whole_is_well(tmp_path, rounds):
    for round_ in range(1, rounds + 1):
        base = f"1.{round_ - 1}.1" if round_ > 1 else None
        commit = f"1.{round_}.1"
        write(tmp_path, str(round_), {"round": round_, "base": base}, rows(commit, g0=[round_]), {"sealed": commit})
    assert audit.main([str(tmp_path)]) == 0
