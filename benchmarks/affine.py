"""Are slopes and offsets of affine clicks found, with honest intervals? Simulated logs whose truth is known.

    .venv/bin/python benchmarks/affine.py                                  # all worlds; writes the table
    .venv/bin/python benchmarks/affine.py --worlds "strong, 1e5" --logs 5  # some of them; prints their table
    .venv/bin/python benchmarks/affine.py --jobs 8

Documents have relevances r ~ Beta(1, 2), three rankers order them by r plus noise of their own, and show ten. Clicks
are Bernoulli(θ_k (ε⁺_k r + ε⁻_k (1 − r))) with examination θ_k = k^-.7, so that α_k = θ_k (ε⁺_k − ε⁻_k) and
β_k = θ_k ε⁻_k. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import many_logs
import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.affine import Affine
from clickharvest.errors import NotIdentifiedError
from clickharvest.estimation.estimators import PBM
from clickharvest.harvesting.interventions import Interventions

POSITIONS, RANKERS, DOCS = 10, 3, 15
COVERAGE = (0.93, 0.97)
LEVEL = 0.07
"""Share of logs without trust in which it may be told, at most."""
Array = NDArray[np.float64]
Measured = dict[str, float | None]


class Clicks(NamedTuple):
    """The truth: Pr(click | examined) of relevant and of irrelevant results at each position, [K]."""

    relevant: Array
    irrelevant: Array


K = np.arange(1, POSITIONS + 1)
TRUST = {
    "none": Clicks(np.full(POSITIONS, 0.98), np.full(POSITIONS, 0.1)),
    "mild": Clicks(0.98 - (K - 1) / 100, 0.1 + 0.15 / K),
    "strong": Clicks(0.98 - (K - 1) / 100, 0.65 / K),
}


@dataclass(frozen=True)
class World:
    """A way to simulate logs.

    Attributes:
        told: what is so, in words.
        trust: how much the position is trusted.
        clicks: clicks of a log, about.
        queries: number of queries; their traffic falls as rank^-zipf.
        noise: of a ranker, against relevances between 0 and 1: with little of it, relevance decides the position.
        logs: logs that the table has.
        zipf: how unequal queries are.
        binary: relevance is .1 or .9, and not a Beta.
        drift: a document's relevance at a position is multiplied by 1 ± this, at random: it changes as it moves.
        unlike: spread of queries' steepness: examination is k^(-.7 e^z), z ~ N(0, unlike²).
        links: share of queries whose rankers differ at all; elsewhere only documents 2 and 3 change places.
        barred: whether the bars apply.
    """

    told: str
    trust: str
    clicks: float
    queries: int
    noise: float = 0.25
    logs: int = 200
    zipf: float = 0.7
    binary: bool = False
    drift: float = 0.0
    unlike: float = 0.0
    links: float = 1.0
    barred: bool = True


def _usual() -> Iterator[tuple[str, World]]:
    """Yield the worlds with bars: three strengths of trust, two kinds of rankers, two sizes."""
    for clicks, queries in ((1e5, 500), (1e6, 2000)):
        for trust in TRUST:
            for kind, noise in (("", 0.25), (", steep", 0.08)):
                told = "rankers of noise .08: relevance nearly decides the position" if noise < 0.1 else ""
                name = f"{trust}{kind}, {clicks:.0e}".replace("e+0", "e")
                yield name, World(told or "three rankers of noise .25", trust, clicks, queries, noise)


WORLDS = dict(_usual()) | {
    "binary": World("relevance is .1 or .9: no smooth density", "strong", 1e5, 500, binary=True, logs=20, barred=False),
    "sparse": World("10,000 queries: a click or two a unit", "strong", 1e5, 10_000, logs=10, barred=False),
    "Zipf": World("traffic as rank^-1.3: a few queries have most", "none", 1e5, 500, zipf=1.3, logs=20, barred=False),
    "drift": World(
        "relevance is 20 % more or less at each position", "none", 1e5, 500, drift=0.2, logs=20, barred=False
    ),
    "unlike": World("queries differ in steepness, exp N(0, .3²)", "none", 1e5, 500, unlike=0.3, logs=20, barred=False),
    "few links": World(
        "rankers differ on 2 % of the queries, else they swap ranks 2 and 3",
        "strong", 1e5, 500, links=0.02, logs=20, barred=False
    ),
    "one query": World("all clicks of one query", "strong", 1e4, 1, logs=20, barred=False),
    "thousand clicks": World("1,000 clicks, 100 queries", "strong", 1e3, 100, logs=20, barred=False),
}  # fmt: skip


class Log(NamedTuple):
    """A simulated harvest, and the truth: slopes, offsets, β_1 (None where they are not constant)."""

    interventions: Interventions
    rate: Array
    a: Array
    b: Array
    floor: float


def simulate(world: World, seed: int) -> Log:
    """Return the interventions of a world, with the click rate at position 1 of each of its rows."""
    random = np.random.default_rng(seed)
    shape = (world.queries, DOCS)
    relevance = random.choice([0.1, 0.9], shape) if world.binary else random.beta(1, 2, shape)
    noise = random.normal(0, world.noise, (RANKERS, *shape))
    order = np.argsort(-(relevance + noise), axis=2)[:, :, :POSITIONS]
    same = random.random(world.queries) >= world.links
    order[1:, same] = order[0, same]
    order[1, same, 1:3] = order[0, same, 2:0:-1]
    seen = K**-0.7
    high, low = TRUST[world.trust]
    alpha, beta = seen * (high - low), seen * low
    typical = np.mean(alpha * relevance[np.arange(world.queries)[:, None], order] + beta) * POSITIONS
    traffic = np.arange(1, world.queries + 1) ** -world.zipf
    pages = random.multinomial(int(world.clicks / typical), np.repeat(traffic / traffic.sum() / RANKERS, RANKERS))
    shown = np.zeros((world.queries * DOCS, POSITIONS), np.int64)
    for ranker, own in enumerate(pages.reshape(-1, RANKERS).T):
        for k in range(POSITIONS):
            np.add.at(shown[:, k], np.arange(world.queries) * DOCS + order[ranker, :, k], own)
    moved = 1 + world.drift * random.choice([-1.0, 1.0], shown.shape)
    own = np.clip(relevance.reshape(-1, 1) * moved, 0, 1)
    rates = alpha * own + beta
    if world.unlike:
        steeper = np.exp(random.normal(0, world.unlike, (world.queries, 1))) - 1
        rates = np.minimum(rates * np.repeat(K ** (-0.7 * steeper), DOCS, axis=0), 1.0)
    clicks = random.binomial(shown, rates)
    unit, k = np.nonzero(shown * (np.count_nonzero(shown, axis=1) > 1)[:, None])
    a = alpha / alpha[0]
    harvest = Interventions(
        unit=unit, query=unit // DOCS, position=k + 1, exposure=shown[unit, k].astype(float), clicks=clicks[unit, k],
        impressions=shown[unit, k],
    )  # fmt: skip
    rate = alpha[0] * relevance.ravel() + beta[0]
    return Log(harvest, rate[unit], a, beta - beta[0] * a, float(beta[0]))


def measure(name: str, seed: int) -> Measured:
    """Return what a fit to a log of a world is worth."""
    log, begin = simulate(WORLDS[name], seed), perf_counter()
    try:
        model = Affine().fit(log.interventions)
    except NotIdentifiedError:
        return {"refused": 1.0}
    seconds = perf_counter() - begin
    found, at = model.predict(), np.array(model.shown) - 1
    a, b = log.a[at], log.b[at]
    fine = found.supported & (at > 0)
    if not fine.any() or 2 not in model.shown:
        return {"refused": 0.0, "supported": 0.0}
    two = model.shown.index(2)
    further = fine & (at > 1)
    examination = PBM(intervals=None).fit(log.interventions).predict().propensity[0]
    place = np.searchsorted(model.shown, log.interventions.position)
    used = found.supported[place]
    truth = a[place] * log.rate + b[place]
    weight = np.where(used, log.interventions.impressions, 0.0)
    corrected = (truth - np.nan_to_num(found.offset)[place]) / np.nan_to_num(found.slope, nan=1.0)[place]
    test, floor = model.offset_test(), model.floor()
    return {
        "refused": 0.0,
        "supported": float(fine.sum() / np.count_nonzero(at > 0)),
        "ratio": _mean(np.abs(found.slope / found.slope[two] / (a / a[two]) - 1)[further]),
        "slope": _mean(np.abs(found.slope / a - 1)[fine]),
        "offset": _mean(np.abs(found.offset - b)[fine]),
        "corrected": _rmse(corrected - log.rate, weight),
        "examination": _rmse(truth / examination[place] - log.rate, weight),
        "slope_covers": _mean(((found.slope_lower <= a) & (a <= found.slope_upper))[fine]),
        "offset_covers": _mean(((found.offset_lower <= b) & (b <= found.offset_upper))[fine]),
        "p_value": None if test is None else test[1],
        "within": within(log),
        "floor_holds": None if floor is None else float(floor <= log.floor),
        "floor": floor,
        "seconds": seconds,
    }  # fmt: skip


def within(log: Log) -> float:
    """Return whether `fit` finds trust among results of one query too."""
    (finding,) = Affine().check(log.interventions)
    return float(finding.severity == "ok")


def _mean(values: Array | NDArray[np.bool_]) -> float | None:
    return float(np.nanmean(values)) if len(values) and not np.isnan(values).all() else None


def _rmse(error: Array, weight: Array) -> float:
    return float(np.sqrt(np.average(np.nan_to_num(error) ** 2, weights=weight)))


def table(kept: dict[str, list[Measured]]) -> tuple[list[str], list[str]]:
    """Return the lines of a Markdown table, and a sentence for each bar."""
    lines = [
        "| world | what is simulated | logs | refused | a_k/a_2 | a | b | corrected | examination "
        "| a covered | b covered | b needed | confirmed | trust told | floor holds | s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    bars = []
    for name, own in kept.items():
        world = WORLDS[name]
        mean = {key: _over(own, key) for key in ("refused", "ratio", "slope", "offset", "corrected",
                "examination", "slope_covers", "offset_covers", "within", "floor_holds", "seconds")}  # fmt: skip
        tests: list[Measured] = [
            {"needed": float(p < 0.05), "trust": float(p < 0.05 and one["within"] == 1.0)}
            for one in own
            if (p := one.get("p_value")) is not None
        ]
        needed, trust = (_over(tests, key) for key in ("needed", "trust"))
        lines.append(
            f"| {name} | {world.told} | {len(own)} | {_share(mean['refused'])} | {_three(mean['ratio'])} "
            f"| {_three(mean['slope'])} | {_three(mean['offset'])} "
            f"| {_three(mean['corrected'])} | {_three(mean['examination'])} | {_coverage(own, 'slope_covers')} "
            f"| {_coverage(own, 'offset_covers')} | {_share(needed)} | {_share(mean['within'])} | {_share(trust)} "
            f"| {_share(mean['floor_holds'])} | {_one(mean['seconds'])} |"
        )
        if world.barred:
            bars += _bars(name, own, mean)
            if world.trust == "none" and trust is not None:
                word = "PASS" if trust <= LEVEL else "FAIL"
                bars.append(f"{word}: {name}: trust is told in {_share(trust)} of {len(own)} logs without any (7 %)")
    return lines, bars


def _bars(name: str, own: list[Measured], mean: dict[str, float | None]) -> list[str]:
    """Return a sentence for each bar; coverage is open while logs are missing, for few logs do not tell it."""
    told, world = [], WORLDS[name]
    for what, key in (("slopes", "slope_covers"), ("offsets", "offset_covers")):
        value = mean[key]
        if value is not None:
            word = "PASS" if COVERAGE[0] <= value <= COVERAGE[1] else "FAIL"
            word = word if len(own) >= world.logs else "OPEN"
            told.append(f"{word}: {name}: {what} are covered in {_coverage(own, key)} of {len(own)} logs (93 to 97 %)")
    if world.clicks >= 1e6 and mean["ratio"] is not None:
        told.append(f"{'PASS' if mean['ratio'] <= 0.1 else 'FAIL'}: {name}: a_k/a_2 off by {mean['ratio']:.3f} (.10)")
    if world.clicks >= 1e6 and world.trust != "none" and mean["corrected"] is not None:
        assert mean["examination"] is not None
        word = "PASS" if mean["corrected"] <= mean["examination"] / 2 else "FAIL"
        told.append(f"{word}: {name}: corrected {mean['corrected']:.3f}, examination {mean['examination']:.3f} (half)")
    return told


def _over(own: list[Measured], key: str) -> float | None:
    values = [value for one in own if (value := one.get(key)) is not None]
    return float(np.mean(values)) if values else None


def _coverage(own: list[Measured], key: str) -> str:
    """Return a share with its standard error over logs, whose positions stand and fall together."""
    values = [value for one in own if (value := one.get(key)) is not None]
    if len(values) < 2:
        return "-"
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1) / len(values) ** 0.5:.1f} %"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _three(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _one(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    many_logs.main("affine", __doc__, {name: world.logs for name, world in WORLDS.items()}, measure, table)
