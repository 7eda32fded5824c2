"""real-log, and its family: every estimator on both halves of a search log of Yandex, scored on the other half.

Sessions are dealt into two halves by a seeded hash. The score of a curve fitted to one half is the click-share log
likelihood per click of the interventions of the other,

    Σ C log π / Σ C,   π_{u,k} = e_{u,k} p_k / Σ_j e_{u,j} p_j.

Bands on the whole log come from resampling its queries. No truth is known; the log is tried with and without the query
that dominates it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clickharvest import PBM, harvest, read_log
from clickharvest.baselines import Cells, adjacent_chain, click_rates, em, pivot_one
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.estimation import make_sample
from clickharvest.harvesting import Interventions
from clickharvest.model import Propensities
from experiments.charts import estimator_chart
from experiments.corpora import find_data
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.runs import Numbers, Result, Results, Run

FAMILY = WORLD = "yandex"
FILE = "yandex_sessions.parquet"
DOMINANT = "9982_0"
"""The query with a large part of all sessions."""
LOGS = ("all queries", f"without {DOMINANT}")
OURS, PAIRS = "PBM ClickShare", "PBM AllPairs"
PEERS = ("CTR", "1/k", "PivotOne", "AdjacentChain", "EM")
MODELS = (OURS, *PEERS, PAIRS)
WAYS = ("A → B", "B → A")
LEVEL = 0.95
WIDE = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Half of a band, in standard deviations."""
TIE = 0.0005
"""Log likelihood per click within which two estimators tie: half a click in a thousand, e^.0005, and less than what
separates other splits of this log. ClickShare and EM tie here: over further splits each wins about half of the time."""

Curves = dict[str, NDArray[np.float64]]


def measure(run: Run) -> Numbers:
    """Fit every estimator to both halves, score it on the other, and draw its band on the whole log."""
    path = find_data(FILE)
    if path is None:
        raise InputError(f"no file {FILE}: expected it in shared/data near the working folder")
    rows = pq.read_table(path)
    if run.log["queries"] != LOGS[0]:
        rows = rows.filter(pc.not_equal(rows["query"], DOMINANT))
    a, b = (fit_all(half) for half in split_sessions(rows, run.seed))
    numbers: Numbers = {way: score(one[1], other[0]) for way, one, other in zip(WAYS, (a, b), (b, a), strict=True)}
    if run.fit["replicates"]:
        interventions, curves = fit_all(rows)
        numbers |= {"clicks": int(interventions.clicks.sum()), "units": interventions.n_units}
        numbers["curves"] = _listed(curves)
        numbers["bands"] = draw_bands(rows, interventions, run.fit["replicates"], run.seed)
    return numbers


def split_sessions(rows: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Deal the sessions into two halves."""
    sessions, code = np.unique(rows["session"].to_numpy(), return_inverse=True)
    digests = [hashlib.blake2b(f"{seed}:{session}".encode(), digest_size=1).digest()[0] for session in sessions]
    odd = (np.array(digests) % 2 == 1)[code]
    return rows.filter(pa.array(~odd)), rows.filter(pa.array(odd))


def fit_all(rows: pa.Table) -> tuple[Interventions, Curves]:
    """Fit every estimator to a log; return its interventions and the curves, NaN where there is no estimate, [K]."""
    log = read_log(rows, page="session", validate=False)
    interventions = harvest(log)
    fits: dict[str, Callable[[], Propensities]] = {
        OURS: lambda: PBM(intervals=None).fit(interventions).propensities_,
        "CTR": lambda: click_rates(log),
        "PivotOne": lambda: pivot_one(interventions),
        "AdjacentChain": lambda: adjacent_chain(interventions),
        "EM": lambda: em(log),
        PAIRS: lambda: PBM(objective="allpairs", intervals=None).fit(interventions).propensities_,
    }
    positions = int(np.max(rows["position"].to_numpy()))
    curves: Curves = {"1/k": 1 / np.arange(1.0, positions + 1)}
    curves |= {name: on_positions(fit, positions) for name, fit in fits.items()}
    return interventions, {name: curves[name] for name in MODELS}


def score(curves: Curves, interventions: Interventions) -> dict[str, float]:
    """Return Σ C log π / Σ C of every curve, at the positions that all of them have."""
    known = np.all([np.isfinite(curve) for curve in curves.values()], axis=0)
    sample = make_sample(interventions, tuple(int(k) for k in np.flatnonzero(known) + 1))
    scores = {}
    for name, curve in curves.items():
        weight = sample.exposure * curve[known][sample.position]
        log_share = np.log(weight / np.bincount(sample.unit, weight)[sample.unit])
        scores[name] = float((sample.clicks * log_share).sum() / sample.clicks.sum())
    return scores


def draw_bands(rows: pa.Table, interventions: Interventions, replicates: int, seed: int) -> Numbers:
    """Return pointwise 95 % bands of all estimators, by resampling queries.

    Queries are too few for a model to call such intervals supported, so its draws are used.
    """
    bands: Numbers = {}
    for name, objective in ((OURS, "clickshare"), (PAIRS, "allpairs")):
        model = PBM(objective=objective, intervals="bootstrap", replicates=replicates, seed=seed)
        fit = model.fit(interventions).propensities_
        half = np.full(len(fit.shown), np.nan)
        half[np.isin(fit.shown, fit.curve.positions)] = WIDE * fit.log_sd(np.zeros((1, 0)))[0]
        middle = np.log(fit.predict().propensity[0])
        bands[name] = _listed({"lower": np.exp(middle - half), "upper": np.exp(middle + half)})
    query, cells = count_by_query(rows)
    names, code = np.unique(query, return_inverse=True)
    unit_query = np.searchsorted(names, interventions.query)
    draws: dict[str, list[NDArray[np.float64]]] = {"CTR": [], "PivotOne": [], "AdjacentChain": [], "EM": []}
    random = np.random.default_rng(seed)
    for _ in range(replicates):
        chosen = random.integers(len(names), size=len(names))
        index, copy = resample(unit_query, chosen)
        units = replace(interventions.take(index), unit=distinct(copy, interventions.unit[index]), query=copy)
        index, copy = resample(code, chosen)
        pair = distinct(copy, cells.pair[index])
        columns = {name: getattr(cells, name)[index] for name in ("position", "clicks", "impressions")}
        log = replace(cells, pair=pair, n_pairs=int(pair.max()) + 1, **columns)
        fits: dict[str, Callable[[], Propensities]] = {
            "CTR": partial(click_rates, log),
            "PivotOne": partial(pivot_one, units),
            "AdjacentChain": partial(adjacent_chain, units),
            "EM": partial(em, log),
        }
        for name, fit_curve in fits.items():
            draws[name].append(on_positions(fit_curve, max(cells.shown)))
    for name, drawn in draws.items():
        lower, upper = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        bands[name] = _listed({"lower": lower, "upper": upper})
    return bands


def count_by_query(rows: pa.Table) -> tuple[NDArray[Any], Cells]:
    """Return the query of every cell of a log, and the cells."""
    counts = rows.group_by(["query", "doc", "position"], use_threads=False).aggregate(
        [("click", "sum"), ("click", "count")]
    )
    query, doc, position = (counts[name].to_numpy() for name in ("query", "doc", "position"))
    pair = distinct(np.unique(query, return_inverse=True)[1], np.unique(doc, return_inverse=True)[1])
    return query, Cells(
        pair=pair,
        position=position.astype(np.int64),
        clicks=counts["click_sum"].to_numpy().astype(np.int64),
        impressions=counts["click_count"].to_numpy().astype(np.int64),
        n_pairs=int(pair.max()) + 1,
        shown=tuple(int(k) for k in np.unique(position)),
    )


def resample(code: NDArray[np.intp], chosen: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the rows of the chosen queries, and which choice each row belongs to: a query drawn twice is two queries.

    Example:
        >>> rows, copy = resample(np.array([0, 1, 1]), np.array([1, 1]))
        >>> rows.tolist(), copy.tolist()
        ([1, 2, 1, 2], [0, 0, 1, 1])
    """
    order = np.argsort(code, kind="stable")
    starts = np.searchsorted(code[order], np.arange(max(int(chosen.max()), int(code.max())) + 2))
    sizes = np.diff(starts)[chosen]
    copy = np.repeat(np.arange(len(chosen)), sizes)
    within = np.arange(len(copy)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[np.repeat(starts[chosen], sizes) + within], copy


def distinct(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """Number the pairs of two codes from 0."""
    key = one.astype(np.int64) * (int(other.max(initial=0)) + 1) + other
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def on_positions(fit: Callable[[], Propensities], positions: int) -> NDArray[np.float64]:
    """Return the curve of a fit, NaN where it has no estimate, [positions]."""
    curve = np.full(positions, np.nan)
    try:
        prediction = fit().predict()
    except NotIdentifiedError:
        return curve
    curve[np.array(prediction.positions) - 1] = prediction.propensity[0]
    return curve


def _listed(arrays: Curves) -> Numbers:
    return {name: [None if np.isnan(v) else float(v) for v in values] for name, values in arrays.items()}


def runs(plan: Plan) -> list[Run]:
    """Return splits of the log, of all queries and without the dominant one; bands on the first split."""
    splits, replicates = (1, 10) if plan.quick else (20, 200)
    return [
        Run(FAMILY, WORLD, split, {"queries": queries}, {"replicates": replicates if split == 0 else 0})
        for split in range(splits)
        for queries in LOGS
    ]


def scores_of(results: Results, queries: str) -> dict[str, NDArray[np.float64]]:
    """Return the scores of every model, split by split and both ways."""
    halves = [r.numbers[way] for r, way in product(results.where(queries=queries), WAYS)]
    return {name: np.array([scores[name] for scores in halves]) for name in MODELS}


def rows(results: Results) -> list[Row]:
    """Return one row per log and model: its mean score, and ClickShare's gain over it."""
    table: list[Row] = []
    for queries in LOGS:
        scores = scores_of(results, queries)
        for name in MODELS:
            gains = [1e3 * (ours - theirs) for ours, theirs in zip(scores[OURS], scores[name], strict=True)]
            table.append(
                {
                    "log": queries,
                    "model": name,
                    "held-out log likelihood per click": float(np.mean(scores[name])),
                    "gain of ClickShare, thousandths": float(np.mean(gains)) if name != OURS else None,
                    "ClickShare wins": f"{sum(g > 0 for g in gains)} of {len(gains)}" if name != OURS else "",
                }
            )
    return table


def headlines(results: Results) -> list[Headline]:
    """Return the mean held-out likelihoods with all queries."""
    scores = scores_of(results, LOGS[0])
    pairs, ours = ([Result(results[0].run, {"score": float(s)}) for s in scores[name]] for name in (PAIRS, OURS))
    return [Headline.of("held-out log lik. per click", "score", Results(pairs), Results(ours))]


def checks(results: Results) -> list[Check]:
    """Return: on the first split no peer beats ClickShare by more than `TIE`, both ways round."""
    claims = []
    for queries, way in product(LOGS, WAYS):
        scores = results.where(queries=queries, seed=0)[0].numbers[way]
        best = max(PEERS, key=scores.__getitem__)
        claims.append(
            Check(
                f"{queries}, {way}: no peer's held-out likelihood is higher than ClickShare's by more than {TIE:g}",
                scores[OURS] > scores[best] - TIE,
                f"{scores[OURS]:.5f}; next is {best}, {scores[best]:.5f}",
            )
        )
    return claims


def chart(results: Results) -> Any:
    """Return the curves of all estimators with their bands, side by side with and without the dominant query."""
    points = []
    for r in results.where(seed=0):
        for name, curve in r.numbers["curves"].items():
            band = r.numbers["bands"].get(name, {"lower": curve, "upper": curve})
            for k, (value, lower, upper) in enumerate(zip(curve, band["lower"], band["upper"], strict=True), 1):
                point = {"model": name, "position": k, "propensity": value, "lower": lower, "upper": upper}
                points.append(point | {"log": r.run.log["queries"]})
    return estimator_chart(points, MODELS)


def unavailable() -> str | None:
    """Return why the experiment cannot run here."""
    return None if find_data(FILE) else f"there is no {FILE} in shared/data near the working folder"


EXPERIMENTS = [Experiment("real-log", runs, rows, headlines, checks, chart, world=WORLD, unavailable=unavailable)]
