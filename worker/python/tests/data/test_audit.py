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


def begin(round_=1, base=None, epoch=0, left=30, digest="a", groups=((10, 3),), **more):
    return {
        "round": round_, "base": base, "epoch": epoch, "left": left,
        "dataset": {"digest": digest, "groups": list(map(list, groups)), **more},
    }  # fmt: skip


def spans(commit, epoch=0, skipped=0, **groups):
    own = {name[1:]: ranges for name, ranges in groups.items()}
    rows = {group: [row for lo, hi in ranges for row in range(lo, hi)] for group, ranges in own.items()}
    return {"commit": commit, "epoch": epoch, "rows": rows, "spans": own, "skipped": skipped}


def sealed(commit, epoch, left):
    return {"sealed": commit, "epoch": epoch, "left": left}


def evaluate(tmp_path, capsys, *lines, more=()):
    write(tmp_path / "audit", "a", *lines)
    code = audit.main([str(tmp_path / "audit"), *more])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


WHOLE = {"g0": [[0, 10]], "g1": [[0, 10]], "g2": [[0, 10]]}
BUT_ONE = {"g0": [[0, 10]], "g1": [[0, 4], [5, 10]], "g2": [[0, 10]]}


def test_rows_of_the_last_finished_epoch_are_missing(tmp_path, capsys):
    told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", **WHOLE), sealed("1.1.1", 0, 0))
    assert told[0] == 0 and "epoch 0: 30 rows committed, 0 of them more than once, 0 missing\n" in told[1]
    told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", **BUT_ONE), sealed("1.1.1", 0, 0))
    assert told[0] == 1 and "epoch 0: 29 rows committed, 0 of them more than once, 1 missing\n" in told[1]


def test_rows_that_are_left_are_not_missing(tmp_path, capsys):
    lines = begin(), spans("1.1.1", g0=[[0, 10]]), sealed("1.1.1", 0, 20)
    code, told = evaluate(tmp_path, capsys, *lines)
    assert code == 0 and "10 rows committed, 0 of them more than once, 20 left, 0 missing" in told
    code, told = evaluate(tmp_path, capsys, *lines, more=["--epochs", "1"])
    assert code == 1
    # The position says that fewer are left than the spans show.
    code, told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", g0=[[0, 10]]), sealed("1.1.1", 0, 15))
    assert code == 1 and "15 left, 5 missing" in told


def test_an_epoch_without_rows_is_missing(tmp_path, capsys):
    code, told = evaluate(
        tmp_path, capsys,
        begin(), spans("1.1.1", **WHOLE), sealed("1.1.1", 0, 0), spans("1.1.2", 2, **WHOLE), sealed("1.1.2", 2, 0),
    )  # fmt: skip
    assert code == 1 and "epoch 1: 0 rows committed, 0 of them more than once, 30 missing" in told
    code, told = evaluate(
        tmp_path, capsys, begin(), spans("1.1.1", **WHOLE), sealed("1.1.1", 0, 0), more=["--epochs", "2"]
    )
    assert code == 1 and "epoch 1: 0 rows committed, 0 of them more than once, 30 left, 0 missing" in told


def test_a_job_may_end_where_an_epoch_begins_or_begin_within_one(tmp_path, capsys):
    code, told = evaluate(
        tmp_path, capsys,
        begin(epoch=3, left=10), spans("1.1.1", 3, g2=[[0, 10]]), sealed("1.1.1", 3, 0), sealed("1.1.2", 4, 30),
    )  # fmt: skip
    assert code == 0 and told.startswith("epoch 3: 10 rows committed, 0 of them more than once, 0 missing\n1 commits")


@pytest.mark.parametrize("more", [{"g0": [[0, 10], [2, 4]]}, {"g0": [[0, 10]], "g1": [[3, 4], [3, 4], [3, 4]]}])
def test_positions_that_overlap_are_repeated_rows(tmp_path, capsys, more):
    left = 20 - ("g1" in more)
    code, told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", **more), sealed("1.1.1", 0, left))
    assert code == 1 and f"{2 if left == 20 else 1} of them more than once, {left} left, 0 missing" in told


def test_a_row_that_is_not_of_the_set(tmp_path, capsys):
    for groups in ({**WHOLE, "g3": [[0, 1]]}, {**WHOLE, "g2": [[0, 11]]}):
        code, told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", **groups), sealed("1.1.1", 0, 0))
        assert code == 1 and "30 rows committed, 0 of them more than once, 0 missing, 1 that are no rows" in told


def test_rows_that_a_predicate_dropped_or_that_could_not_be_read_are_processed(tmp_path, capsys):
    line = spans("1.1.1", **WHOLE, skipped=10)
    line["rows"] = {"0": [1, 2]}
    code, told = evaluate(tmp_path, capsys, begin(), line, sealed("1.1.1", 0, 0))
    assert code == 0 and "30 rows committed, 0 of them more than once, 10 of them could not be read, 0 missing" in told


def test_a_directory_without_a_log(tmp_path, capsys):
    for directory in (tmp_path, tmp_path / "nowhere"):
        assert audit.main([str(directory)]) == 2
        assert "no audit log is there" in capsys.readouterr().err


def test_the_position_of_a_base_counts_as_that_of_its_commit(tmp_path, capsys):
    """The worker that sealed the commit died before it could log that."""
    write(tmp_path / "audit", "b", begin(2, "1.1.1", 0, 20))
    code, told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", g0=[[0, 10]]))
    assert code == 0 and "10 rows committed, 0 of them more than once, 20 left, 0 missing" in told


def test_two_data_sets_in_one_directory(tmp_path, capsys):
    other = begin(left=5, digest="b", groups=[[5, 1]])
    write(tmp_path / "audit", "b", other, spans("1.1.1", g0=[[0, 4]]), sealed("1.1.1", 0, 0))
    lines = begin(), spans("1.1.1", **WHOLE), sealed("1.1.1", 0, 0)
    code, told = evaluate(tmp_path, capsys, *lines)
    assert code == 1
    assert "data set a: 3 row groups, 30 rows\nepoch 0: 30 rows committed, 0 of them more than once, 0 missing" in told
    assert "data set b: 1 row groups, 5 rows\nepoch 0: 4 rows committed, 0 of them more than once, 1 missing" in told
    write(tmp_path / "audit", "b", other, spans("1.1.1", g0=[[0, 5]]), sealed("1.1.1", 0, 0))
    assert evaluate(tmp_path, capsys, *lines)[0] == 0


def test_data_sets_of_the_same_files_are_counted_apart(tmp_path, capsys):
    """Such as one for training and one for validation, with another condition."""
    write(tmp_path / "audit", "b", begin(reader="2"), spans("1.1.1", g0=[[0, 10]]), sealed("1.1.1", 0, 20))
    code, told = evaluate(tmp_path, capsys, begin(reader="1"), spans("1.1.1", **WHOLE), sealed("1.1.1", 0, 0))
    assert code == 0
    assert "data set a, reader 1: 3 row groups, 30 rows\nepoch 0: 30 rows committed, 0 of them more" in told
    assert "data set a, reader 2: 3 row groups, 30 rows\nepoch 0: 10 rows committed, 0 of them more" in told


def test_a_position_that_forgets_committed_rows(tmp_path, capsys):
    code, told = evaluate(tmp_path, capsys, begin(), spans("1.1.1", g0=[[0, 10]]), sealed("1.1.1", 0, 25))
    assert code == 1 and "25 left, 0 missing, 5 committed and left" in told


def test_logs_of_an_earlier_release_tell_of_an_epoch_without_rows(tmp_path, capsys):
    lines = rows("1.1.1", g0=[1]), {"sealed": "1.1.1"}, rows("1.1.2", 2, g0=[1]), {"sealed": "1.1.2"}
    code, told = evaluate(tmp_path, capsys, {"round": 1, "base": None}, *lines)
    assert code == 1 and "epoch 1: 0 rows committed" in told and "logs of an earlier release" in told


def test_logs_of_an_earlier_release_may_begin_at_a_later_epoch(tmp_path, capsys):
    lines = {"round": 1, "base": None}, rows("1.1.1", 3, g0=[1]), {"sealed": "1.1.1"}
    code, told = evaluate(tmp_path, capsys, *lines)
    assert code == 0 and "epoch 3: 1 rows committed" in told and "epoch 0" not in told
    code, told = evaluate(tmp_path, capsys, *lines, more=["--epochs", "4"])
    assert code == 1 and "epoch 0: 0 rows committed" in told


def test_logs_without_a_line(tmp_path, capsys):
    """The workers have opened the data set, and the job ended before its first round."""
    code, told = evaluate(tmp_path, capsys)
    assert (code, told) == (0, "no worker has logged a round\n0 commits hold rows, 0 are void\n")
    assert evaluate(tmp_path, capsys, more=["--epochs", "1"])[0] == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_epoch_that_is_whole_is_well(tmp_path, rounds):
    for round_ in range(1, rounds + 1):
        base = f"1.{round_ - 1}.1" if round_ > 1 else None
        commit = f"1.{round_}.1"
        write(tmp_path, str(round_), {"round": round_, "base": base}, rows(commit, g0=[round_]), {"sealed": commit})
    assert audit.main([str(tmp_path)]) == 0
