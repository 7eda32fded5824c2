"""What is said of hostile logs? Each of `hostile_logs` is checked, fitted and judged as `clickharvest report` does.

    .venv/bin/python benchmarks/attacks.py --jobs 2                              # all worlds; writes the README's table
    .venv/bin/python benchmarks/attacks.py --worlds "seen rows" bandit --logs 3  # some; prints their table

Outcomes are kept in `benchmarks/data/attacks.json` (`--json`), and a run goes on where an earlier one ended. A log is
answered honestly where its supported numbers hold, or where a finding names what is wrong with it: the bar is one of
the two in nine of ten logs. Exits with 1 where it is missed.
"""

from __future__ import annotations

import warnings
import zlib
from collections import Counter
from typing import Any

import many_logs
import numpy as np
from hostile_logs import WORLDS, Pages

LOGS, BAR, WOLF = 10, 0.9, 0.1
NEW = ("single clicks", "clicked through", "missing rows", "unequal pages", "one user", "repeated clicks")
NEW += ("context of clicks", "clicks by ranker", "one click a page", "few users", "usual position", "depth by ranker")
NEW += ("usual position by user", "unmoved queries", "links within queries")
"""Findings that came with this table: where nothing is wrong, they must keep silent."""

Outcome = dict[str, Any]


def measure(name: str, seed: int) -> Outcome:
    """Return the outcome of a log; the warnings of a harvest are findings, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judged(name, seed)


def judged(name: str, seed: int) -> Outcome:
    """Simulate a log, do with it what a user does, and return what is said and how wrong it is.

    The outcome has `word`, the verdict; `alarms`, the findings that warn or block; and, unless the log is refused,
    `error`, the mean |log p̂_k / p_k|, and `covered`, the share of 95 % intervals that hold p_k, of supported k ≥ 2.
    """
    import pyarrow as pa

    from clickharvest import CPBM, PBM, diagnose, harvest, read_log
    from clickharvest.errors import InputError, NotIdentifiedError
    from clickharvest.estimation.model_checks import check_model
    from clickharvest.report.reasons import Grounds
    from clickharvest.report.verdict import judge

    pages = WORLDS[name].make(np.random.default_rng([zlib.crc32(name.encode()), seed]))
    table = pages.table()
    roles = {role: role for role in ("page", "time", "user", "ranker") if role in table}
    log = read_log(pa.table(table), context=list(pages.asked), **roles)
    found = list(diagnose(log).findings)
    try:
        one_query = not np.ptp(pages.columns["query"])  # of which nothing tells how queries differ: users do
        interventions = harvest(log, cluster="user" if one_query else "query")
        estimator = CPBM(curve="linear") if pages.asked else PBM()
        model = estimator.fit(interventions).propensities_
        checks = check_model(interventions)
    except (InputError, NotIdentifiedError):
        return {"word": "refused", "alarms": ["refused"]}
    verdict = judge(model, Grounds(findings=found, checks=checks))
    alarms = sorted({own.name for own in [*found, *checks] if own.status in ("warning", "blocking")})
    return {"word": verdict.word, "why": verdict.why, "alarms": alarms} | compare(model, pages)


def compare(model: Any, pages: Pages) -> Outcome:
    """Return how far a model is from the truth where it gives a number."""
    told = model.predict({name: [value] for name, value in pages.asked.items()} or None)
    given = told.supported[0] & ~told.cannot_tell[0] & (np.array(told.positions) > 1)
    if not given.any():
        return {}
    truth = pages.truth[np.array(told.positions)[given] - 1]
    p, lower, upper = (np.log(part[0, given]) for part in (told.propensity, told.lower, told.upper))
    covered = np.mean((lower <= truth) & (truth <= upper))
    return {"error": float(np.mean(np.abs(p - truth))), "covered": float(covered)}


def table(done: dict[str, list[Outcome]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    lines = [
        "| world | what is wrong | logs | verdicts | alarms | error | covered | named | honest |",
        "|---|---|--:|---|---|--:|--:|--:|---|",
    ]
    bars = []
    for name, own in done.items():
        world = WORLDS[name]
        verdicts = ", ".join(f"{word} {times}" for word, times in Counter(one["word"] for one in own).most_common())
        alarms = Counter(alarm for one in own for alarm in one["alarms"] if alarm != "refused")
        named = float(np.mean([bool({*one["alarms"]} & {*world.named_by}) for one in own]))
        wolf = float(np.mean([bool({*one["alarms"]} & {*NEW} - {*world.named_by}) for one in own]))
        error, covered = (
            float(np.mean(some)) if (some := [one[key] for one in own if key in one]) else None
            for key in ("error", "covered")
        )
        holds = covered is not None and covered >= BAR
        honest = "yes" if holds or named >= BAR else "in part" if named >= WOLF else "no"
        honest += ", cries wolf" if holds and wolf > WOLF else ""
        lines.append(
            f"| {name} | {world.told} | {len(own)} | {verdicts} "
            f"| {', '.join(f'{alarm} {times}' for alarm, times in alarms.most_common(4))} "
            f"| {'' if error is None else f'{error:.2f}'} | {'' if covered is None else f'{100 * covered:.0f} %'} "
            f"| {f'{100 * named:.0f} %' if world.named_by else ''} | {honest} |"
        )
        bars.append(f"{'PASS' if honest == 'yes' else 'FAIL'}: {name}: {honest}")
    return lines, bars


if __name__ == "__main__":
    many_logs.main("attacks", __doc__, dict.fromkeys(WORLDS, LOGS), measure, table)
