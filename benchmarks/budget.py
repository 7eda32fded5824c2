"""Does the budget hold the truth? `check_fit` on logs whose examination is known, sound ones and ones that mislead.

    .venv/bin/python benchmarks/budget.py --jobs 2                       # all worlds; writes the table
    .venv/bin/python benchmarks/budget.py --worlds trust "100,000 pages" --logs 1
    .venv/bin/python benchmarks/budget.py --json FILE --report           # write the tables of what a file holds

The checks were developed on the worlds of `budget_worlds`, and are judged on those of `judged_worlds`. The true error
is log p_k less log p̂_k in the worst context that is asked for. The bars are those of the budget:

- the truth is within the budget at position 3 and at position 10 in 90 % of all logs;
- of sound logs of 100,000 pages or more, 80 % are known to ±30 % or better;
- of biased logs whose curve is off by more than 30 % at some position, 95 % are not called usable.

A log that is refused, or of which nothing can be told for a reason that has no size, has an infinite budget. Every log
also has the budget of another rule: biases are corrected by their sum and standard errors are added in squares (NIST).
Needs NumPy, SciPy and DuckDB.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import budget_worlds
import judged_worlds
import many_logs
import numpy as np
import pyarrow as pa
from accuracy import say
from numpy.typing import NDArray

from clickharvest import CPBM, PBM, harvest, read_log
from clickharvest.checks import Displays, Evidence, Finding, check_fit, read_displays
from clickharvest.checks.checking import noise
from clickharvest.checks.finding import NORMAL
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model import Propensities

Array = NDArray[np.float64]
Log = dict[str, Any]
"""What was measured on one log."""

WORLDS = judged_worlds.SOUND | judged_worlds.BIASED | budget_worlds.SOUND | budget_worlds.BIASED
LOGS, TOLERANCE = 10, 0.3
POSITIONS = (3, 10)
"""Positions at which budgets are judged; where a page is shorter, its last."""
LARGE = 100_000
COVERED, NARROW, NOT_USABLE = 0.9, 0.8, 0.95
FOLDS = {"a real fold": [6]}
"""Folds that the user has named."""
RULES = {"": "root of the sum of squares", "other_": "corrected sum"}
HEAD = (
    "world",
    "pages",
    "logs",
    "true error at 10",
    "budget at 10",
    "covered at 3",
    "at 10",
    "words",
    "largest terms",
    "seconds",
)


def measure(world: str, seed: int) -> Log:
    """Return the true error and the budget of a log, by position."""
    pages = WORLDS[world](seed)
    log: Log = {"seed": seed, "pages": len(pages.query), "refused": ""}
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            clicks = read_log(pa.table(pages.table()), context=list(pages.context))
            model = (CPBM() if pages.context else PBM()).fit(harvest(clicks)).propensities_
            fitted = time.process_time()
            displays, folds = read_displays(clicks), FOLDS.get(world, [])
            found = check_fit(displays, model, folds=folds)
            seconds = {"fit": fitted - began, "seconds": time.process_time() - fitted}
        except (InputError, NotIdentifiedError) as refusal:
            say(f"{world}, seed {seed}: refused: {refusal}")
            return log | {"refused": str(refusal)}
    budget = found.budget
    prediction = model.predict(pages.asked or None)
    truth = dict(enumerate(pages.truth.T - pages.truth.T[model.curve.anchor - 1], 1))
    at = [k for k in budget.positions if k in truth]
    error = np.array([truth[k] - np.log(prediction.propensity[:, prediction.positions.index(k)]) for k in at])
    other_up, other_down = other_rule(displays, model, found.findings, at)
    here = [budget.positions.index(k) for k in at]
    log |= seconds | {
        "positions": at,
        "above": np.expm1(error.max(axis=1, initial=-np.inf)).tolist(),
        "below": (-np.expm1(error.min(axis=1, initial=np.inf))).tolist(),
        "up": [budget.up[i] for i in here],
        "down": [budget.down[i] for i in here],
        "other_up": other_up.tolist(),
        "other_down": other_down.tolist(),
        "word": budget.word,
        "off": budget.off,
        "other_off": off(other_up, other_down),
        "reason": budget.reason,
        "terms": budget.sizes(),
        "untested": dict(budget.untested),
        "told": {one.kind: one.sentence for one in found.findings if one.severity not in ("ok", "untested")},
    }
    say(f"{world}, seed {seed}: {spell_error(log, 10)} true at 10, {spell_budget(log, 10)}; {budget}")
    return log


def other_rule(
    displays: Displays, model: Propensities, findings: Sequence[Finding], at: Sequence[int]
) -> tuple[Array, Array]:
    """Return U± = max(0, ± Σ e³ / (e² + σ²)) + 1.96 √Σ σ² of the worst context above and below, as fractions."""
    evidence = Evidence(displays, model)
    down, up = (side / NORMAL for side in noise(evidence))
    sums, squares = np.zeros((1, 1)), np.zeros((1, 1))
    for finding in findings:
        if finding.effect is not None and finding.standard_error is not None:
            effect, square = finding.effect, finding.standard_error**2
            weight = np.divide(effect**2, effect**2 + square, out=np.zeros(effect.shape), where=effect != 0)
            sums, squares = sums + weight * effect, squares + square
    above = (np.maximum(0, sums) + NORMAL * np.sqrt(up**2 + squares)).max(axis=0)
    below = (np.maximum(0, -sums) + NORMAL * np.sqrt(down**2 + squares)).max(axis=0)
    where = np.searchsorted(evidence.positions, at)
    return np.expm1(above[where]), -np.expm1(-below[where])


def off(up: Any, down: Any) -> float:
    """Return how far off a curve is at the worst position, as `Budget.off`."""
    below = max(down, default=0.0)
    return float(max(max(up, default=0.0), 1 / (1 - below) - 1 if below < 1 else np.inf))


def is_silent(log: Log) -> bool:
    """Return whether nothing is told of the curve, for a reason that has no size."""
    return bool(log["refused"] or log["reason"])


def place(log: Log, position: int) -> int | None:
    """Return the index of a position, or of the last of a shorter page; None where it has no estimate."""
    last = min(position, max(log.get("positions", []), default=0))
    return log["positions"].index(last) if last in log.get("positions", []) else None


def is_covered(log: Log, position: int, rule: str = "") -> bool:
    """Return whether the truth is within the budget at a position."""
    k = place(log, position)
    if is_silent(log) or k is None:
        return True
    return bool(log["above"][k] <= log[f"{rule}up"][k] and log["below"][k] <= log[f"{rule}down"][k])


def is_usable(log: Log, rule: str = "") -> bool:
    """Return whether a curve is said to be known to the tolerance at every position."""
    return not is_silent(log) and bool(log[f"{rule}off"] <= TOLERANCE)


def is_off(log: Log) -> bool:
    """Return whether a curve is off by more than the tolerance at some position."""
    return not log["refused"] and off(log["above"], log["below"]) > TOLERANCE


def table(kept: dict[str, list[Log]]) -> tuple[list[str], list[str]]:
    """Return the lines of both tables with what they miss, and a sentence for each bar."""
    summary = [
        "| worlds | what holds | share of logs | logs | bar | met | corrected sum |",
        "|---|---|--:|--:|--:|---|--:|",
    ]
    lines: list[str] = []
    bars: list[str] = []
    for title, sound, biased in (
        ("Judged on", judged_worlds.SOUND, judged_worlds.BIASED),
        ("Developed on", budget_worlds.SOUND, budget_worlds.BIASED),
    ):
        worlds = {name: kept[name] for name in (*sound, *biased) if name in kept}
        if not worlds:
            continue
        large = [log for name in worlds if name in sound for log in worlds[name] if log["pages"] >= LARGE]
        wrong = [log for name in worlds if name in biased for log in worlds[name] if is_off(log)]
        logs = [log for own in worlds.values() for log in own]
        shares = [
            judged(logs, lambda log, rule: is_covered(log, POSITIONS[0], rule), COVERED, "covered at position 3"),
            judged(logs, lambda log, rule: is_covered(log, POSITIONS[1], rule), COVERED, "covered at position 10"),
            judged(large, is_usable, NARROW, "sound and large: ±30 % or better"),
            judged(wrong, lambda log, rule: not is_usable(log, rule), NOT_USABLE, "biased and off: not usable"),
        ]
        summary += [f"| {title.lower()} | {' | '.join(cells)} |" for cells in shares]
        bars += [
            f"{'PASS' if cells[4] == 'yes' else 'FAIL'}: {title.lower()} {cells[0]}: {cells[1]}" for cells in shares
        ]
        lines += [f"{title}:", "", f"| {' | '.join(HEAD)} |", f"|---|{'--:|' * 6}---|---|--:|"]
        lines += [f"| {' | '.join(row(name, own))} |" for name, own in worlds.items()]
        missed = [f"- {name}: {said}" for name, own in worlds.items() for said in misses(own, name in sound)]
        lines += ["", "Missed:", "", *(missed or ["- nothing"]), ""]
    return [*summary, "", *lines], bars


def judged(logs: Sequence[Log], holds: Callable[[Log, str], bool], bar: float, what: str) -> list[str]:
    """Return what a bar is about, the share of logs that hold by either rule, and whether the bar is met."""
    if not logs:
        return [what, "–", "0", f"{bar:.0%}", "yes", "–"]
    share, other = (float(np.mean([holds(log, rule) for log in logs])) for rule in RULES)
    return [what, f"{share:.0%}", f"{len(logs)}", f"{bar:.0%}", "yes" if share >= bar else "no", f"{other:.0%}"]


def row(name: str, own: Sequence[Log]) -> list[str]:
    """Return the cells of a world."""
    told = [log for log in own if not log["refused"]]
    middle = sorted(told, key=lambda log: -1.0 if (k := place(log, 10)) is None else log["up"][k])
    words = ["refused" if log["refused"] else log["word"] for log in own]
    terms: dict[str, float] = {}
    for log in told:
        terms |= {term: max(terms.get(term, 0.0), size) for term, size in log["terms"].items()}
    largest = sorted(terms, key=lambda term: -terms[term])[:3]
    return [
        name,
        f"{np.median([log['pages'] for log in own]):,.0f}",
        str(len(own)),
        spell_error(middle[len(middle) // 2], 10) if told else "",
        spell_budget(middle[len(middle) // 2], 10) if told else "",
        *(f"{sum(is_covered(log, k) for log in own)}" for k in POSITIONS),
        ", ".join(f"{word} {words.count(word)}" for word in dict.fromkeys(words)),
        ", ".join(f"{term} {spell(terms[term])}" for term in largest),
        f"{np.median([log['seconds'] for log in told]):.1f}" if told else "",
    ]


def misses(own: Sequence[Log], sound: bool) -> list[str]:
    """Return what the logs of a world miss, a sentence for each kind of miss."""
    said = []
    for k in POSITIONS:
        short = [log for log in own if not is_covered(log, k)]
        if short:
            worst = max(
                short, key=lambda log: off([log["above"][place(log, k) or 0]], [log["below"][place(log, k) or 0]])
            )
            true, told = spell_error(worst, k), spell_budget(worst, k)
            said.append(f"{len(short)} of {len(own)} not covered at {k}: the worst {true} true, {told} told")
    wide = [log for log in own if sound and log["pages"] >= LARGE and not is_usable(log)]
    if wide:
        off_by = ", ".join(log["reason"] or log["refused"] or spell(log["off"]) for log in wide)
        said.append(f"{len(wide)} of {len(own)} wider than ±30 %: {off_by}")
    wrong = [log for log in own if not sound and is_off(log) and is_usable(log)]
    if wrong:
        said.append(
            f"{len(wrong)} of {len(own)} usable, although off by {spell(off(wrong[0]['above'], wrong[0]['below']))}"
        )
    return said


def spell_error(log: Log, position: int) -> str:
    """Return how far above or below the estimate the truth is at most, signed."""
    if (k := place(log, position)) is None:
        return "no estimate"
    above, below = log["above"][k], log["below"][k]
    return f"+{spell(above)}" if np.log1p(above) >= -np.log1p(-below) else f"−{spell(below)}"


def spell_budget(log: Log, position: int) -> str:
    """Return how far below and above the estimate the truth may lie."""
    if is_silent(log):
        return "any"
    k = place(log, position)
    return "no estimate" if k is None else f"−{spell(log['down'][k])} to +{spell(log['up'][k])}"


def spell(size: float) -> str:
    """Return a fraction in percent."""
    return f"{100 * size:.0f} %" if np.isfinite(size) else "any"


if __name__ == "__main__":
    many_logs.main("budget", __doc__, dict.fromkeys(WORLDS, LOGS), measure, table)
