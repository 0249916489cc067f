"""Renders a plan: bars for a terminal, and an SVG of the epoch before and after the change."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .. import _native

Worker = tuple[str, int, int]
Ranges = list[tuple[int, int]]

#: Maximum number of workers in the bars. The table has all.
_MAX_SHOWN = 64


@dataclass(frozen=True)
class Change:
    """The change of one worker, in rows."""

    name: str
    #: Whether it exists before, and after.
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
        """Whether it exists before and after."""
        return self.goes_in and self.comes_out

    @property
    def comes(self) -> bool:
        """Whether it is new."""
        return not self.goes_in


def rows(shares: Sequence[Ranges]) -> int:
    """Rows of all workers."""
    return sum(end - start for share in shares for start, end in share)


def changes(preview: _native.PlanPreview, before: Sequence[Worker], after: Sequence[Worker]) -> list[Change]:
    """Each worker once: first the workers before in order, then the new ones."""
    index_after = {worker[:2]: index for index, worker in enumerate(after)}
    index_before = {worker[:2]: index for index, worker in enumerate(before)}
    received: dict[int, Counter[int]] = {}
    for source, to, count in preview.flows:
        received.setdefault(to, Counter())[source] += count
    found = []
    for host, slot in dict.fromkeys([*index_before, *index_after]):
        old, new = index_before.get((host, slot)), index_after.get((host, slot))
        got = received.get(new, Counter()) if new is not None else Counter()
        kept = got.pop(old, 0) if old is not None else 0
        near = sum(count for source, count in got.items() if before[source][0] == host)
        found.append(
            Change(
                f"{host}:{slot}",
                old is not None,
                new is not None,
                rows([preview.before[old]]) if old is not None else 0,
                kept,
                near,
                sum(got.values()) - near,
                rows([preview.after[new]]) if new is not None else 0,
            )
        )
    return found


def bars(preview: _native.PlanPreview, before: Sequence[Worker], after: Sequence[Worker], width: int) -> Iterator[str]:
    """A bar for each worker after the change: the rows that it keeps, and those that it gets, by origin."""
    all = [one for one in changes(preview, before, after) if one.comes_out]
    shown = all[:_MAX_SHOWN]
    name = max(len(one.name) for one in shown)
    largest = max(one.after for one in all) or 1
    available = max(min(width, 120) - name - 2, 10)
    for one in shown:
        ends = [round(available * part / largest) for part in (one.kept, one.kept + one.near, one.after)]
        cells = "█" * ends[0] + "▓" * (ends[1] - ends[0]) + "░" * (ends[2] - ends[1])
        yield f"{one.name.ljust(name)}  {cells}".rstrip()
    if len(all) > len(shown):
        yield f"... and {len(all) - len(shown):,} more"
    yield f"{' ' * name}  █ kept  ▓ from its host  ░ from other hosts"


def svg(preview: _native.PlanPreview, before: Sequence[Worker], after: Sequence[Worker]) -> str:
    """The epoch as two bars in reading order: the worker of each row before and after."""
    names = [change.name for change in changes(preview, before, after)]
    colour = {
        name: "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(0.618 * index % 1, 0.55, 0.6))
        for index, name in enumerate(names)
    }
    wide, columns = 1000, 8
    high = 190 + 20 * -(-len(names) // columns)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="12">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
    ]
    for top, title, workers, shares in (
        (30, "before", before, preview.before),
        (110, "after", after, preview.after),
    ):
        drawn.append(f'<text x="0" y="{top - 8}">{title}: {rows(shares):,} rows left of {preview.rows:,}</text>')
        drawn.append(f'<rect x="0" y="{top}" width="{wide}" height="50" fill="#eee"/>')
        for (host, slot, _), share in zip(workers, shares, strict=True):
            name = f"{host}:{slot}"
            for start, end in share:
                x, length = wide * start / preview.rows, wide * (end - start) / preview.rows
                drawn.append(
                    f'<rect x="{x:.3f}" y="{top}" width="{length:.3f}" height="50" fill="{colour[name]}">'
                    f"<title>{escape(name)}: {end - start:,} rows</title></rect>"
                )
    for index, name in enumerate(names):
        x, y = wide / columns * (index % columns), 185 + 20 * (index // columns)
        drawn.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour[name]}"/>')
        drawn.append(f'<text x="{x + 16}" y="{y}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>", ""])
