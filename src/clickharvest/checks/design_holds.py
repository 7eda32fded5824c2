"""Does the log stand where the design says it can? Exposures by design are believed, whatever the log shows.

What stands elsewhere is left out, and takes its clicks along, from one position more than from others: a hundredth of
all impressions may be a tenth of those of one position among ten, and a tenth may be all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clickharvest.checks.finding import Finding, Severity, spell_percent
from clickharvest.checks.swap_ranks import swap_ranks
from clickharvest.harvesting.designs import Rankings, Swap, agreement
from clickharvest.harvesting.placements import LoggedPlacements
from clickharvest.logs.click_log import same
from clickharvest.words import count

if TYPE_CHECKING:
    from clickharvest.harvesting.designs import Design
    from clickharvest.logs.click_log import ClickLog

NAME = "design"
FEW = 0.01
"""Share of the impressions that may stand elsewhere, as after late changes of an index or a page in a cache: at one
position of ten it is a tenth of the clicks at most, which moves a curve by as much."""
WRONG = (
    " So the exposures are wrong: give the rankings, swaps and traffic that made these pages, or fit what was shown."
)


def design_findings(log: ClickLog, design: Design | None, max_position: int | None = None) -> list[Finding]:
    """Return whether a log agrees with the design of its exposures; nothing where exposures are realised.

    Args:
        log: the log.
        design: as in `harvest`.
        max_position: as in `harvest`.

    Raises:
        InputError: no impression is where the design says.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 4, "doc": list("abba"), "position": [1, 2, 1, 2], "click": [1, 0, 0, 1]}
        >>> ranked = {"query": ["q"] * 2, "ranker": ["f"] * 2, "doc": ["a", "b"], "position": [1, 2]}
        >>> design = Rankings(pa.table(ranked), traffic={"f": 1})
        >>> [finding] = design_findings(read_log(pa.table(shown)), design)
        >>> finding.severity, finding.value
        ('decisive', 0.5)
    """
    if design is None or isinstance(design, LoggedPlacements):  # the latter says nothing of where nothing stood
        return []
    found = agreement(log, design, max_position)
    what = f"of {count(found.known, 'impression')}"
    share = found.elsewhere / found.known
    told = f"{found.elsewhere:,} {what} ({spell_percent(share)}) stand where, by the design, they could not"
    sound = "Every impression stands where, by the design, it could"
    if isinstance(design, Rankings) and log.has("ranker"):
        moved, known = _by_own_ranker(log, design, max_position)
        sound += " and its ranker has it" * (known > 0 and not moved)
        if known and moved / known > share:
            share = moved / known
            told = (
                f"{moved:,} of {count(known, 'impression')} ({spell_percent(share)}) do not stand where their ranker "
                "has them"
            )
    rest = found.shown - found.known
    left = f"; {count(rest, 'impression is', 'impressions are')} of results that the design does not have, and left out"
    left *= rest > 0
    if not share:
        return [Finding(NAME, "ok", f"{sound}{left}.", value=0.0), *_of_swaps(log, design, max_position)]
    severity: Severity = "decisive" if share > FEW else "note"
    finding = Finding(NAME, severity, f"{told}{left}.{WRONG * (share > FEW)}", value=share)
    return [finding, *_of_swaps(log, design, max_position)]


def _of_swaps(log: ClickLog, design: Design, max_position: int | None) -> list[Finding]:
    return swap_ranks(log, design, max_position) if isinstance(design, Swap) else []


def _by_own_ranker(log: ClickLog, design: Rankings, max_position: int | None) -> tuple[int, int]:
    """Return how many impressions stand elsewhere than their ranker has them, and of how many the rankings tell."""
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    t, ranked = t.mutate(ranker=t.ranker.cast("string")), design.read(log)
    keys = ["query", *(name for name in log.context if name in ranked.columns), "doc", "ranker"]
    has = ranked.select(*keys).distinct()
    known = t.semi_join(has, same(t, has, keys))
    moved = known.anti_join(ranked, same(known, ranked, [*keys, "position"]))
    counts = known.agg(known=known.impressions.sum().fill_null(0).cast("int64")).cross_join(
        moved.agg(moved=moved.impressions.sum().fill_null(0).cast("int64"))
    )
    found = log.engine.fetch(counts, task="Checking the design").to_pylist()[0]
    return found["moved"], found["known"]
