"""Pictures of a plan: bars for a terminal, and a drawing of the epoch before and after."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .. import _native

Worker = tuple[str, int, int]
Ranges = list[tuple[int, int]]

#: Workers that a terminal shows; the table has all.
_MOST = 64


@dataclass(frozen=True)
class Change:
    """What a plan does to one worker, in rows."""

    name: str
    #: Whether it is there before, and after.
    goes_in: bool
    comes_out: bool
    before: int
    kept: int
    #: From other workers of its host, and from other hosts.
    near: int
    far: int
    after: int

    @property
    def stays(self) -> bool:
        """It is there before and after."""
        return self.goes_in and self.comes_out

    @property
    def comes(self) -> bool:
        """It is new."""
        return not self.goes_in


def rows(shares: Sequence[Ranges]) -> int:
    """Rows of all workers."""
    return sum(end - start for share in shares for start, end in share)


def changes(told: _native.Forecast, before: Sequence[Worker], after: Sequence[Worker]) -> list[Change]:
    """Each worker once: those before in their order, then those that come."""
    places = {worker[:2]: place for place, worker in enumerate(after)}
    former = {worker[:2]: place for place, worker in enumerate(before)}
    received: dict[int, Counter[int]] = {}
    for source, to, count in told.flows:
        received.setdefault(to, Counter())[source] += count
    found = []
    for host, slot in dict.fromkeys([*former, *places]):
        own, place = former.get((host, slot)), places.get((host, slot))
        got = received.get(place, Counter()) if place is not None else Counter()
        kept = got.pop(own, 0) if own is not None else 0
        near = sum(count for source, count in got.items() if before[source][0] == host)
        found.append(
            Change(
                f"{host}:{slot}",
                own is not None,
                place is not None,
                rows([told.before[own]]) if own is not None else 0,
                kept,
                near,
                sum(got.values()) - near,
                rows([told.after[place]]) if place is not None else 0,
            )
        )
    return found


def bars(told: _native.Forecast, before: Sequence[Worker], after: Sequence[Worker], width: int) -> Iterator[str]:
    """A bar for each worker after the change: what it keeps, and what it gets from where."""
    all = [one for one in changes(told, before, after) if one.comes_out]
    shown = all[:_MOST]
    name = max(len(one.name) for one in shown)
    most = max(one.after for one in all) or 1
    room = max(min(width, 120) - name - 2, 10)
    for one in shown:
        ends = [round(room * part / most) for part in (one.kept, one.kept + one.near, one.after)]
        cells = "█" * ends[0] + "▓" * (ends[1] - ends[0]) + "░" * (ends[2] - ends[1])
        yield f"{one.name.ljust(name)}  {cells}".rstrip()
    if len(all) > len(shown):
        yield f"... and {len(all) - len(shown):,} more"
    yield f"{' ' * name}  █ kept  ▓ from its host  ░ from other hosts"


def svg(told: _native.Forecast, before: Sequence[Worker], after: Sequence[Worker]) -> str:
    """The epoch as two strips, in the order in which rows are read: whose each row is before and after."""
    names = [change.name for change in changes(told, before, after)]
    colour = {
        name: "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(0.618 * place % 1, 0.55, 0.6))
        for place, name in enumerate(names)
    }
    wide, columns = 1000, 8
    high = 190 + 20 * -(-len(names) // columns)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
    ]
    for top, title, workers, shares in (
        (30, "before", before, told.before),
        (110, "after", after, told.after),
    ):
        drawn.append(f'<text x="0" y="{top - 8}">{title}: {rows(shares):,} rows left of {told.rows:,}</text>')
        drawn.append(f'<rect x="0" y="{top}" width="{wide}" height="50" fill="#eee"/>')
        for (host, slot, _), share in zip(workers, shares, strict=True):
            name = f"{host}:{slot}"
            for start, end in share:
                x, length = wide * start / told.rows, wide * (end - start) / told.rows
                drawn.append(
                    f'<rect x="{x:.3f}" y="{top}" width="{length:.3f}" height="50" fill="{colour[name]}">'
                    f"<title>{escape(name)}: {end - start:,} rows</title></rect>"
                )
    for place, name in enumerate(names):
        x, y = wide / columns * (place % columns), 185 + 20 * (place // columns)
        drawn.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour[name]}"/>')
        drawn.append(f'<text x="{x + 16}" y="{y}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])
