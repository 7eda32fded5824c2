"""The family of the real-log runs: every estimator on both halves of a search log of Yandex, scored on the other half.

Sessions are dealt into two halves by a seeded hash. The score of a curve fitted to one half is the click-share log
likelihood per click of the interventions of the other,

    Σ C log π / Σ C,   π_{u,k} = e_{u,k} p_k / Σ_j e_{u,j} p_j.

Bands on the whole log come from resampling its queries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from experiments.families.corpora import find_data
from experiments.runner.registry import family
from experiments.runner.runs import Numbers, Run

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.baselines import Cells
    from clickharvest.harvesting import Interventions
    from clickharvest.model import Propensities

FAMILY = "yandex"
FILE = "yandex_sessions.parquet"
DOMINANT = "9982_0"
"""The query with a large part of all sessions."""
LOGS = ("all queries", f"without {DOMINANT}")
OURS = "PBM ClickShare"
PEERS = ("CTR", "1/k", "PivotOne", "AdjacentChain", "EM")
MODELS = (OURS, *PEERS, "PBM AllPairs")
WAYS = ("A → B", "B → A")
LEVEL = 0.95
WIDE = NormalDist().inv_cdf((1 + LEVEL) / 2)
"""Half of a band, in standard deviations."""

Curves = dict[str, NDArray[np.float64]]


@family(FAMILY)
def measure(run: Run, source: Path | None) -> Numbers:
    """Fit every estimator to both halves, score it on the other, and draw its band on the whole log."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

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
        numbers["curves"] = _plain(curves)
        numbers["bands"] = draw_bands(rows, interventions, run.fit["replicates"], run.seed)
    return numbers


def split_sessions(rows: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Deal the sessions into two halves."""
    import pyarrow as pa

    sessions, code = np.unique(rows["session"].to_numpy(), return_inverse=True)
    digests = [hashlib.blake2b(f"{seed}:{session}".encode(), digest_size=1).digest()[0] for session in sessions]
    odd = (np.array(digests) % 2 == 1)[code]
    return rows.filter(pa.array(~odd)), rows.filter(pa.array(odd))


def fit_all(rows: pa.Table) -> tuple[Interventions, Curves]:
    """Fit every estimator to a log; return its interventions and the curves, NaN where there is no estimate, [K]."""
    from clickharvest import PBM, harvest, read_log
    from clickharvest.baselines import adjacent_chain, click_rates, em, pivot_one

    log = read_log(rows, page="session", validate=False)
    interventions = harvest(log)
    fits: dict[str, Callable[[], Propensities]] = {
        OURS: lambda: PBM(intervals=None).fit(interventions).propensities_,
        "CTR": lambda: click_rates(log),
        "PivotOne": lambda: pivot_one(interventions),
        "AdjacentChain": lambda: adjacent_chain(interventions),
        "EM": lambda: em(log),
        "PBM AllPairs": lambda: PBM(objective="allpairs", intervals=None).fit(interventions).propensities_,
    }
    positions = int(np.max(rows["position"].to_numpy()))
    curves: Curves = {"1/k": 1 / np.arange(1.0, positions + 1)}
    curves |= {name: on_positions(fit, positions) for name, fit in fits.items()}
    return interventions, {name: curves[name] for name in MODELS}


def score(curves: Curves, interventions: Interventions) -> dict[str, float]:
    """Return Σ C log π / Σ C of every curve, at the positions that all of them speak of."""
    from clickharvest.estimation import make_sample

    known = np.all([np.isfinite(curve) for curve in curves.values()], axis=0)
    sample = make_sample(interventions, tuple(int(k) for k in np.flatnonzero(known) + 1))
    scores = {}
    for name, curve in curves.items():
        weight = sample.exposure * curve[known][sample.position]
        log_share = np.log(weight / np.bincount(sample.unit, weight)[sample.unit])
        scores[name] = float((sample.clicks * log_share).sum() / sample.clicks.sum())
    return scores


def draw_bands(rows: pa.Table, interventions: Interventions, replicates: int, seed: int) -> dict[str, Any]:
    """Return pointwise 95 % bands of all estimators, by resampling queries.

    Queries are few, too few for a model to call such intervals supported: what is asked for are its draws.
    """
    from clickharvest import PBM
    from clickharvest.baselines import adjacent_chain, click_rates, em, pivot_one

    bands: dict[str, Any] = {}
    for name, objective in ((OURS, "clickshare"), ("PBM AllPairs", "allpairs")):
        model = PBM(objective=objective, intervals="bootstrap", replicates=replicates, seed=seed)
        found = model.fit(interventions).propensities_
        half = np.full(len(found.shown), np.nan)
        half[np.isin(found.shown, found.curve.positions)] = WIDE * found.log_sd(np.zeros((1, 0)))[0]
        middle = np.log(found.predict().propensity[0])
        bands[name] = _plain({"lower": np.exp(middle - half), "upper": np.exp(middle + half)})
    query, cells = count_by_query(rows)
    names, code = np.unique(query, return_inverse=True)
    own = np.searchsorted(names, interventions.query)
    positions = max(cells.shown)
    drawn: dict[str, list[NDArray[np.float64]]] = {"CTR": [], "PivotOne": [], "AdjacentChain": [], "EM": []}
    random = np.random.default_rng(seed)
    for _ in range(replicates):
        chosen = random.integers(len(names), size=len(names))
        index, copy = resample(own, chosen)
        moved = replace(interventions.take(index), unit=distinct(copy, interventions.unit[index]), query=copy)
        index, copy = resample(code, chosen)
        pair = distinct(copy, cells.pair[index])
        again = replace(
            cells,
            pair=pair,
            n_pairs=int(pair.max()) + 1,
            position=cells.position[index],
            clicks=cells.clicks[index],
            impressions=cells.impressions[index],
        )
        drawn["CTR"].append(on_positions(partial(click_rates, again), positions))
        drawn["PivotOne"].append(on_positions(partial(pivot_one, moved), positions))
        drawn["AdjacentChain"].append(on_positions(partial(adjacent_chain, moved), positions))
        drawn["EM"].append(on_positions(partial(em, again), positions))
    for name, kept in drawn.items():
        lower, upper = np.nanquantile(kept, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        bands[name] = _plain({"lower": lower, "upper": upper})
    return bands


def count_by_query(rows: pa.Table) -> tuple[NDArray[Any], Cells]:
    """Return the query of every cell of a log, and the cells."""
    from clickharvest.baselines import Cells

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
    """Return the curve that a fit finds, NaN where it has no estimate, [positions]."""
    curve = np.full(positions, np.nan)
    try:
        found = fit().predict()
    except NotIdentifiedError:
        return curve
    curve[np.array(found.positions) - 1] = found.propensity[0]
    return curve


def _plain(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: [None if np.isnan(v) else float(v) for v in values] for name, values in arrays.items()}
