"""Advice: how far a log is from ±10 %, in one line, from what a diagnosis has counted; NumPy alone.

The information of the clicks on log p is a Laplacian, whose ties between positions a diagnosis has (`PairOverlap`). Its
inverse without the anchor gives standard errors, as if queries read alike, and positions followed no law:
`plan_from_log` counts how they differ, and what a law is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clickharvest.diagnosis.diagnosing import Diagnosis
from clickharvest.model.support import rests_on_few
from clickharvest.positions.places import Places, name_place, name_places
from clickharvest.words import count

WIDTH, Z = 0.1, 1.96


def advice(diagnosis: Diagnosis) -> str | None:
    """Return how much more of such traffic ±10 % at every linked position takes, about; None where nothing is linked.

    Example:
        >>> import textwrap
        >>> import pyarrow as pa
        >>> from clickharvest.diagnosis.diagnosing import diagnose
        >>> from clickharvest.logs.reading import read_log
        >>> shown = pa.table({"query": ["q", "q"], "doc": ["a", "a"], "position": [1, 2], "clicks": [50, 30]})
        >>> told = advice(diagnose(read_log(shown.append_column("impressions", pa.array([100, 100])))))
        >>> print(textwrap.fill(told, 106))
        For ±10 % at every position, expect to need about 23 times this traffic (position 2: ±57 % now), as far as
        queries read alike: clickharvest plan asks whether they do. Position 2 rests on 1 query, and others may be
        read in another way: more queries would tell, more clicks of these would not.
    """
    linked = [k for k in diagnosis.linked if k != diagnosis.anchor]
    if not linked:
        return None
    positions = [diagnosis.anchor, *linked]
    index = {k: i for i, k in enumerate(positions)}
    ties = np.zeros((len(positions), len(positions)))
    for pair in diagnosis.pairs:
        if pair.position in index and pair.other in index:
            i, j = index[pair.position], index[pair.other]
            ties[i, j] = ties[j, i] = pair.information
    laplacian = np.diag(ties.sum(axis=1)) - ties
    variance = np.diag(np.linalg.pinv(laplacian[1:, 1:], hermitian=True))
    worst = int(np.argmax(variance))
    times = variance[worst] * (Z / np.log1p(WIDTH)) ** 2
    margin = np.expm1(Z * np.sqrt(variance[worst]))
    what = "position" if diagnosis.places is None else "place"
    every = f"every {what}" if diagnosis.identified else f"every linked {what}"
    queries = {overlap.position: overlap.effective_queries for overlap in diagnosis.overlaps}
    few = tell_few([(k, queries[k]) for k in linked if k in queries], ("query", "queries"), diagnosis.places)
    if times <= 1:
        enough = f"Clicks are enough for ±10 % at {every}, as far as queries read alike (widest: {_told(margin)})"
        return f"{enough}, but queries are too few. {few}" if few else f"{enough}."
    more = ": clickharvest plan asks whether they do" if diagnosis.places is None else ""  # it plans lists alone
    return (
        f"For ±10 % at {every}, expect to need about {times:,.{0 if times >= 10 else 1}f} times this traffic "
        f"({name_place(linked[worst], diagnosis.places)}: {_told(margin)} now), as far as queries read alike{more}."
        f"{few and f' {few}'}"
    )


def tell_few(queries: Sequence[tuple[int, float | None]], nouns: tuple[str, str], places: Places | None = None) -> str:
    """Return a sentence on positions that rest on few effective queries, or what else clusters; nothing without such.

    Example:
        >>> tell_few([(2, 90.0), (3, 1.2), (4, 2.4)], ("user", "users"))
        'Positions 3-4 rest on 1 to 2 users, and others may be read in another way: more users would tell, more \
clicks of these would not.'
        >>> tell_few([(2, 90.0), (3, None)], ("query", "queries"))
        ''
    """
    few = {k: max(1, round(n)) for k, n in queries if n is not None and rests_on_few(n)}
    if not few:
        return ""
    where, (least, most) = name_places(list(few), places), (min(few.values()), max(few.values()))
    amount = count(most, *nouns) if least == most else f"{least} to {count(most, *nouns)}"
    return (
        f"{where[0].upper()}{where[1:]} {'rests' if len(few) == 1 else 'rest'} on {amount}, and others may be read in "
        f"another way: more {nouns[1]} would tell, more clicks of these would not."
    )


def _told(margin: float) -> str:
    return f"±{100 * margin:.0f} %" if margin < 10 else "over ±1,000 %"
