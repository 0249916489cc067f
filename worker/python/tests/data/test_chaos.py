"""Random kills and resizes of a real job: the audit says that each row was committed once in each epoch, and in order
"deterministic" that each step was the same as without them."""

from __future__ import annotations

import os
import random
import re
import signal
from dataclasses import dataclass

import pyarrow as pa
import pytest
from support import parquet
from support.audits import committed
from support.images import png

from elasticrun.data import ParquetDataset, audit

ROWS = 2000
SEED = 20
HOSTS = ("localhost", "127.0.0.1")
SLOTS = [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]

SCRIPT = """
import os, time, numpy as np
import elasticrun as e
from elasticrun.data import Image, Pack, ParquetDataset, torch_loader

# A single write, since this process may be killed between two writes.
def say(line):
    os.write(1, f"{{line}}\\n".encode())

e.init()

def doubled(columns):
    return {{"index": columns["index"], "doubled": 2 * columns["index"]}}

def arrays(tensors):
    return {{name: tensor.numpy() for name, tensor in tensors.items()}}

data = ParquetDataset("{data}", seed=7, audit="{audit}", {way}**{options})
state = e.ObjectState(data=data, seen=np.zeros({rows}), steps=0)
batches = {batches}

@e.elastic.run
def train(state):
    say(f"ROUND {{e.world().round}} OF {{e.size()}} PID {{os.getpid()}}")
    began = state.steps
    while True:
        for batch in batches:
            {check}
            time.sleep(0.002)
            seen = np.zeros({rows})
            np.add.at(seen, batch["index"], 1)
            state.seen = state.seen + e.allreduce(seen, op=e.Sum, name="seen")
            state.steps += 1
            if state.steps % 3:
                state.check_host_updates()
            else:
                state.commit()
            if state.steps == began + 4:
                say(f"TRAINS {{e.world().round}}")
        # Without a step in between, so that the end of an epoch and its commit are one.
        state.data.next_epoch()
        state.commit()
        over = e.allreduce(float(os.path.exists("{stop}")), op=e.Max, name="over")
        if over:
            return state.seen

seen = train(state)
if {drops}:
    say(f"EACH ROW AT MOST {{state.data.epoch}} TIMES")
else:
    assert (seen == seen[0]).all(), np.unique(seen, return_counts=True)
    say(f"EACH ROW {{int(seen[0])}} TIMES")
"""


@dataclass(frozen=True)
class Way:
    """A way to read the rows."""

    #: Arguments of the data set.
    arguments: str = ""
    #: What the loop goes over, and what it asserts of each batch.
    batches: str = "data"
    check: str = "pass"


PLAIN = Way('columns=["index"], ')
IN_A_THREAD = Way("transform=doubled, prefetch=3, ")
IN_PROCESSES = Way("transform=doubled, transform_workers=2, ")
#: Processes of a loader of torch.
IN_WORKERS = Way(
    'columns=["index"], ',
    "torch_loader(data, num_workers=2, persistent_workers=True, collate_fn=arrays)",
)
IMAGES = Way(
    'columns=["index", "image"], forms={"image": Image((4, 4))}, ',
    check='assert (batch["image"][:, 0, 0, 1] == batch["index"] % 251).all()',
)
RAGGED = Way(
    'columns=["index", "tokens"], forms={"tokens": Pack()}, ',
    check='assert (np.diff(batch["tokens.offsets"]) == batch["index"] % 5).all()',
)
WAYS = {
    "plain": PLAIN, "thread": IN_A_THREAD, "processes": IN_PROCESSES, "workers": IN_WORKERS, "images": IMAGES, "ragged": RAGGED,
}  # fmt: skip


def further(index):
    """Columns of images and of lists of several lengths."""
    return {
        "image": pa.array([png(4, 4, (0, row % 251, 0)) for row in index]),
        "tokens": pa.array([[row] * (row % 5) for row in index], pa.list_(pa.int32())),
    }


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, id=name, marks=[] if name == "plain" else pytest.mark.full) for name, way in WAYS.items()],
)
def test_fifty_strikes(start, tmp_path, way):
    epochs, kills = strike(start, tmp_path, 50, way, batch_size=7, shuffle_rows=128)
    seen = audit.read(tmp_path / "audit")
    assert seen.repeated() == []
    assert {epoch: len(rows) for epoch, rows in seen.rows.items()} == dict.fromkeys(range(epochs), ROWS)
    assert kills > 10


@pytest.mark.parametrize(
    ("way", "strikes"),
    [
        pytest.param(IN_PROCESSES, 12, id="processes-quick"),
        *(pytest.param(way, 50, id=name, marks=pytest.mark.full) for name, way in WAYS.items()),
    ],
)
def test_strikes_change_no_step(start, tmp_path, way, strikes):
    options = {"order": "deterministic", "global_batch_size": 14, "stripes": 60}
    epochs, kills = strike(start, tmp_path, strikes, way, **options)
    assert kills > 3
    # One process without a job reads all rows in the order of their positions.
    alone = ParquetDataset(tmp_path / "data", seed=7, **options)
    alone._enter_shard(0, 1)
    commits = committed(tmp_path / "audit")
    assert sorted({epoch for _, epoch in commits}) == list(range(epochs))
    for epoch in alone.epochs(epochs):
        order = [row for batch in alone._batches() for row in batch.origins()]
        assert len(set(order)) == ROWS
        done = 0
        for _, rows in sorted((commit, rows) for (commit, of), rows in commits.items() if of == epoch):
            assert rows == set(order[done : done + len(rows)])
            done += len(rows)
            assert done % 14 == 0 or done == ROWS
        assert done == ROWS


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [{"batch_size": 7}, {"order": "deterministic", "global_batch_size": 14, "stripes": 60}],
    ids=["local", "deterministic"],
)
def test_fifty_strikes_with_drop_last(start, tmp_path, options, capsys):
    """Each row is committed once, or is left out at the end of its epoch."""
    epochs, kills = strike(start, tmp_path, 50, PLAIN, drop_last=True, **options)
    assert kills > 10
    assert audit.main([str(tmp_path / "audit"), str(tmp_path / "data"), "--epochs", str(epochs)]) == 0
    proof = capsys.readouterr().out
    assert "left out by drop_last" in proof
    seen = audit.read(tmp_path / "audit")
    assert seen.repeated() == [] and set(range(epochs)) <= set(seen.rows)


#: A mixture that repeats its data sets, of 900 and 200 rows.
MIXTURE = """
import os, time, numpy as np
import elasticrun as e
from elasticrun.data import Mixture, ParquetDataset

def say(line):
    os.write(1, f"{{line}}\\n".encode())

e.init()
parts = [ParquetDataset(path, seed=7, audit=path + " audit", columns=["index"], **{options}) for path in {paths}]
data = Mixture(parts, weights=[1, 1], steps=10)
state = e.ObjectState(data=data, seen=[np.zeros(rows) for rows in {rows}], steps=0)

@e.elastic.run
def train(state):
    say(f"ROUND {{e.world().round}} OF {{e.size()}} PID {{os.getpid()}}")
    began = state.steps
    while True:
        for batch in state.data:
            time.sleep(0.002)
            seen = np.zeros(len(state.seen[batch.source]))
            np.add.at(seen, batch["index"], 1)
            seen = e.allreduce(seen, op=e.Sum, name=f"seen {{batch.source}}")
            state.seen = [have + seen if place == batch.source else have for place, have in enumerate(state.seen)]
            state.steps += 1
            if state.steps % 3:
                state.check_host_updates()
            else:
                state.commit()
            if state.steps == began + 4:
                say(f"TRAINS {{e.world().round}}")
        state.data.next_epoch()
        state.commit()
        over = e.allreduce(float(os.path.exists("{stop}")), op=e.Max, name="over")
        if over:
            return state.seen

for seen in train(state):
    # The last epoch of the data set goes on.
    assert seen.max() - seen.min() <= 1, np.unique(seen, return_counts=True)
say("EVEN")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [{"batch_size": 7}, {"order": "deterministic", "global_batch_size": 14, "stripes": 10}],
    ids=["local", "deterministic"],
)
def test_fifty_strikes_of_a_mixture_that_repeats(start, tmp_path, options):
    rows = [900, 200]
    paths = [str(parquet.write(tmp_path / f"set {count}", rows=count, files=2, group=20)) for count in rows]
    stop = tmp_path / "stop"
    script = MIXTURE.format(paths=paths, rows=rows, options=options, stop=stop)
    text, kills = strike_job(start, stop, 50, script)
    assert "EVEN" in text and kills > 10
    for count, path in zip(rows, paths, strict=True):
        logged = audit.read(f"{path} audit")
        assert logged.repeated() == []
        *whole, last = [len(found) for _, found in sorted(logged.rows.items())]
        assert whole and set(whole) == {count} and 0 < last <= count


def strike(start, tmp_path, strikes, way, **options):
    """Trains while workers are killed and hosts come and go, so many times. Gives how many epochs were trained, and how many
    workers were killed."""
    stop = tmp_path / "stop"
    text, kills = strike_job(
        start,
        stop,
        strikes,
        SCRIPT.format(
            data=parquet.write(tmp_path / "data", rows=ROWS, files=4, group=40, more=further),
            audit=tmp_path / "audit",
            way=way.arguments,
            batches=way.batches,
            check=way.check,
            options=options,
            rows=ROWS,
            stop=stop,
            drops="drop_last" in options,
        ),
    )
    times = {int(found) for found in re.findall(r"EACH ROW (?:AT MOST )?(\d+) TIMES", text)}
    assert len(times) == 1
    return times.pop(), kills


def strike_job(start, stop, strikes, script):
    """Runs a script while workers are killed and hosts come and go. Gives what it printed, and how many workers were killed."""
    chance = random.Random(SEED)
    change = start.hosts("localhost:2\n")
    job = start.job(
        f"-np 2 --min-np 1 --max-np 4 --host-discovery-script {start.discovery} --discovery-interval 50ms"
        " --last-call 50ms --failure-domain slot --blacklist-cooldown-range 0 0 --max-host-failures 1000",
        script,
    )
    trained, slots, kills, done = -1, (2, 0), 0, 0
    while done < strikes:
        # Each strike happens while a round trains.
        while trained < (newest := _newest(job.text)):
            trained = int(re.search(r"TRAINS (\d+)", job.until("TRAINS"))[1])
        found = re.findall(r"ROUND (\d+) OF (\d+) PID (\d+)", job.text)
        members = [int(pid) for round_, _, pid in found if int(round_) == newest]
        size = next(int(size) for round_, size, _ in found if int(round_) == newest)
        # One worker survives, since a job without workers has failed.
        if len(members) == size > 1 and (size != sum(slots) or chance.random() < 0.6):
            victims = chance.sample(members, chance.randrange(1, size))
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            kills += len(victims)
            done += 1
        elif size == sum(slots):
            slots = chance.choice([other for other in SLOTS if sum(other) != size])
            change("".join(f"{host}:{count}\n" for host, count in zip(HOSTS, slots, strict=True) if count))
            done += 1
        while _newest(job.text) == newest:
            job.until("ROUND")
    stop.touch()
    return job.succeed(), kills


def _newest(text: str) -> int:
    return max((int(found) for found in re.findall(r"ROUND (\d+)", text)), default=0)
