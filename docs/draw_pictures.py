"""Draws the pictures of *Can my log tell me?* from the logs on that page: `python docs/draw_pictures.py`.

Colours follow the reader's light or dark scheme; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

import pyarrow.csv as csv

from clickharvest import Diagnosis, diagnose, read_log
from clickharvest.simulate import simulate_ab_log

DOCS = Path(__file__).parent
FILE = re.compile(r'^```csv title="([\w.-]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
STYLE = (
    "<style>.bg{fill:#fff}.t{fill:#1f2933}.m{fill:#6b7785}.on{fill:#0f766e}.off{fill:#fff;stroke:#c2410c;"
    "stroke-dasharray:4 3}.w{fill:#fff}.bad{fill:#c2410c}.link{stroke:#0f766e;fill:none}.half{stroke:#c2410c;fill:none;"
    "stroke-dasharray:6 4}.no{fill:#eef1f5}@media (prefers-color-scheme:dark){.bg{fill:#0f1419}.t{fill:#e6eaf0}"
    ".m{fill:#93a0b0}.off{fill:#0f1419;stroke:#fb923c}.bad{fill:#fb923c}.half{stroke:#fb923c}.no{fill:#222b36}"
    ".link{stroke:#2dd4bf}}</style>"
)


def pictures() -> dict[str, str]:
    """Return every picture by the name of its file."""
    logs = dict(FILE.findall((DOCS / "identifiability.md").read_text()))
    told = {name: diagnose(read_log(csv.read_csv(io.BytesIO(text.encode())))) for name, text in logs.items()}
    table, _ = simulate_ab_log(pages=20_000, seed=0)
    return {"links.svg": draw_links(told), "overlap.svg": draw_overlap(diagnose(read_log(table)))}


def draw_links(diagnoses: dict[str, Diagnosis]) -> str:
    """Draw positions as dots, one panel per log; an arc where common documents were clicked, dashed if one way only."""
    width, height = 250, 165
    parts = [
        f'<g transform="translate({20 + i * width} 0)">{"".join(_panel(name, diagnosis, width, height))}</g>'
        for i, (name, diagnosis) in enumerate(diagnoses.items())
    ]
    label = "; ".join(
        f"{name}: linked to position 1 are {', '.join(map(str, diagnosis.linked))}"
        for name, diagnosis in diagnoses.items()
    )
    return _svg(20 + width * len(diagnoses), height, label, parts)


def _panel(name: str, diagnosis: Diagnosis, width: int, height: int) -> Iterator[str]:
    step = (width - 70) / (len(diagnosis.positions) - 1)
    place = {k: 20 + i * step for i, k in enumerate(diagnosis.positions)}
    base = height - 62
    yield f'<text class="t" x="4" y="30" font-weight="600">{escape(name)}</text>'
    for pair in diagnosis.pairs:
        x, other = place[pair.position], place[pair.other]
        both = bool(pair.clicks and pair.other_clicks)
        rise = base - 26 - 0.42 * (other - x)
        yield (
            f'<path class="{"link" if both else "half"}" stroke-width="{3 if both else 2}" '
            f'd="M{x:.1f} {base} Q{(x + other) / 2:.1f} {rise:.1f} {other:.1f} {base}"/>'
        )
    for k, x in place.items():
        linked = k in diagnosis.linked
        yield f'<circle class="{"on" if linked else "off"}" cx="{x:.1f}" cy="{base}" r="15"/>'
        yield f'<text class="{"w" if linked else "bad"}" x="{x:.1f}" y="{base + 5}" text-anchor="middle">{k}</text>'
    unlinked = ", ".join(map(str, diagnosis.unlinked))
    kind, answer = ("bad", f"no estimate: {unlinked}") if unlinked else ("m", "every position has an estimate")
    yield f'<text class="{kind}" x="4" y="{height - 18}">{answer}</text>'


def draw_overlap(diagnosis: Diagnosis) -> str:
    """Draw the effective clicks of every pair of positions as a square each."""
    cell, left, top = 46, 60, 66
    effective = {(pair.position, pair.other): pair.effective_clicks for pair in diagnosis.pairs}
    most = max(effective.values())
    parts = [f'<text class="t" x="{left}" y="28" font-weight="600">effective clicks that compare two positions</text>']
    for i, k in enumerate(diagnosis.positions):
        parts += [
            f'<text class="m" x="{left + (i + 0.5) * cell}" y="{top - 10}" text-anchor="middle">{k}</text>',
            f'<text class="m" x="{left - 12}" y="{top + (i + 0.5) * cell + 5}" text-anchor="end">{k}</text>',
        ]
        for j, other in enumerate(diagnosis.positions[:i]):
            value = effective.get((other, k), 0.0)
            x, y = left + j * cell, top + i * cell
            parts.append(f'<rect class="no" x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" rx="3"/>')
            if value:
                shade = (value / most) ** 0.5
                parts += [
                    f'<rect class="on" opacity="{shade:.2f}" x="{x}" y="{y}" width="{cell - 2}" height="{cell - 2}" '
                    'rx="3"/>',
                    f'<text class="{"w" if shade > 0.6 else "t"}" font-size="11" x="{x + cell / 2 - 1}" '
                    f'y="{y + cell / 2 + 3}" text-anchor="middle">{value:,.0f}</text>',
                ]
    size = cell * len(diagnosis.positions)
    label = f"Effective clicks of {len(effective)} pairs of positions; most between neighbours at the top"
    return _svg(left + size + 20, top + size + 10, label, parts)


def _svg(width: int, height: int, label: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="14" role="img" aria-label="{escape(label)}">'
    )
    ground = f'<rect class="bg" width="{width}" height="{height}" rx="10"/>'
    return "\n".join([head, STYLE, ground, *parts, "</svg>", ""])


if __name__ == "__main__":
    for name, picture in pictures().items():
        (DOCS / name).write_text(picture)
        print(f"{name}: drawn")
