from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import InputError
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.allpairs import AllPairs
from clickharvest.estimation.objectives.clickshare import ClickShare
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import CURVES, make_curve

POSITIONS = (1, 2, 4, 7)
SHAPES = {"lowrank": {"rank": 2}, "mlp": {"width": 2}, "recurrent": {"width": 2}, "position": {"width": 2}}


def random_sample(
    seed: int = 0, *, unit_kind: Any = "context", design: bool = False, units: int = 14, k: int = 4
) -> Sample:
    """Return units of 2 to k cells in 5 queries and 4 contexts; every fourth unit has no click."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = defaultdict(list)
    for u in range(units):
        cells = random.integers(2, k + 1)
        positions = np.sort(random.choice(k, cells, replace=False))
        contexts = random.integers(4, size=cells) if unit_kind == "query" else [random.integers(4)] * cells
        impressions = random.integers(1, 5, size=cells)
        columns["unit"] += [u] * cells
        columns["context"] += [*contexts]
        columns["position"] += [*positions]
        columns["exposure"] += [*(random.dirichlet(np.ones(cells)) if design else impressions)]
        columns["clicks"] += [*(random.binomial(impressions, 0.0 if u % 4 == 3 else 0.6))]
        columns["impressions"] += [*impressions]
        columns["cluster"] += [u % 5] * cells
    return Sample(
        positions=POSITIONS[:k],
        x=random.normal(size=(4, 2)),
        n_clusters=5,
        unit_kind=unit_kind,
        **{name: np.array(column) for name, column in columns.items()}
        | {"exposure": np.array(columns["exposure"], float)},
    )


def log_h(sample: Sample, seed: int = 9) -> np.ndarray:
    """Return log examination probabilities of every context and position, all below 0."""
    return -np.random.default_rng(seed).exponential(size=(len(sample.x), len(sample.positions))) - 0.01


def rows_of(sample: Sample) -> list[dict[str, Any]]:
    names = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")
    columns = [getattr(sample, name).tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def value(objective: Any, params: Any, log_p: Any, sample: Sample, weights: Any = None) -> float:
    own = objective.formula(params, sample.x) if objective.columns else None
    weights = np.ones(sample.n_clusters) if weights is None else np.asarray(weights)
    return float(objective.value_and_slopes(log_p, own, weights)[0])


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


# ClickShare


def brute_force_click_share(sample: Sample, log_p: np.ndarray, s: Any = (0.0, 0.0), weights: Any = None) -> float:
    total = 0.0
    for u in range(sample.n_units):
        cells = [row for row in rows_of(sample) if row["unit"] == u]
        mass = [
            c["exposure"] * math.exp(log_p[c["context"], c["position"]] + float(sample.x[c["context"]] @ np.array(s)))
            for c in cells
        ]
        for cell, own in zip(cells, mass, strict=True):
            weight = 1.0 if weights is None else weights[cell["cluster"]]
            total += weight * cell["clicks"] * math.log(own / sum(mass))
    return total


@pytest.mark.parametrize("design", [False, True])
def test_click_share_is_the_sum_of_log_shares(design: bool) -> None:
    sample = random_sample(design=design)
    weights = np.random.default_rng(0).exponential(size=5)
    objective = ClickShare(sample)
    assert len(objective.cells.blocks) > 1  # units of different size, held apart
    assert objective.init(np.random.default_rng(0)) == {}
    assert objective.size == sample.clicks.sum()
    expected = brute_force_click_share(sample, log_h(sample), weights=weights)
    assert value(objective, {}, log_h(sample), sample, weights) == pytest.approx(expected, rel=1e-10)


def test_click_share_of_contexts_that_vary_inside_a_unit() -> None:
    sample = random_sample(unit_kind="query")
    objective, s = ClickShare(sample), np.array([[0.4], [-1.3]])
    assert objective.init(np.random.default_rng(0))["s"].tolist() == [[0.0], [0.0]]
    expected = brute_force_click_share(sample, log_h(sample), s[:, 0])
    assert value(objective, {"s": s}, log_h(sample), sample) == pytest.approx(expected, rel=1e-10)
    assert float(objective.penalty({"s": s})) == pytest.approx((0.4**2 + 1.3**2) / 2)


@pytest.mark.parametrize(("name", "unit_kind"), [("linear", "context"), ("linear", "query"), ("lowrank", "context")])
def test_expected_gradient_is_zero_at_the_truth_for_any_relevance(name: str, unit_kind: str) -> None:
    """E[C] = e p r in place of C: the estimating equation is unbiased, whatever r is."""
    sample = random_sample(5, unit_kind=unit_kind, design=True)
    curve = make_curve(name, POSITIONS, 1, 2, **SHAPES.get(name, {}))
    fit = Fit(curve, ClickShare(sample), sample)
    truth = fit.starts(1, seed=0)[0] + np.random.default_rng(1).normal(size=fit.starts(1, seed=0).shape[1])
    params = fit.params(truth)
    log_p = curve.relative(params["curve"], sample.x) + sample.x @ params["objective"].get("s", np.zeros((2, 1)))
    relevance = np.random.default_rng(2).uniform(size=sample.n_units)
    expected = sample.exposure * np.exp(log_p[sample.context, sample.position]) * relevance[sample.unit]
    exact = replace(sample, clicks=expected)
    points = np.stack([truth, truth + 0.3 * np.arange(len(truth))])
    at_truth, elsewhere = Fit(curve, ClickShare(exact), exact).value_and_grad(points, np.ones((2, 5)), np.zeros(2))[1]
    assert np.abs(at_truth).max() < 1e-13
    assert np.abs(elsewhere).max() > 1e-3


def renumbered(sample: Sample) -> Sample:
    """Return the units in reverse order, with new numbers."""
    order = np.argsort(-sample.unit, kind="stable")
    columns = {name: getattr(sample, name)[order] for name in ("context", "position", "exposure", "clicks")}
    rest = {name: getattr(sample, name)[order] for name in ("impressions", "cluster")}
    return replace(sample, unit=sample.n_units - 1 - sample.unit[order], **columns, **rest)


def within_units_reversed(sample: Sample) -> Sample:
    order = np.lexsort((-sample.position, sample.unit))
    names = ("unit", "context", "position", "exposure", "clicks", "impressions", "cluster")
    return replace(sample, **{name: getattr(sample, name)[order] for name in names})


def stacked(*samples: Sample) -> Sample:
    """Return samples below one another, each with units of its own."""
    units, begin = [], 0
    for sample in samples:
        units.append(sample.unit + begin)
        begin += sample.n_units
    names = ("context", "position", "exposure", "clicks", "impressions", "cluster")
    columns = {name: np.concatenate([getattr(sample, name) for sample in samples]) for name in names}
    return replace(samples[0], unit=np.concatenate(units), **columns)


def of_queries(sample: Sample, queries: list[int]) -> Sample:
    names = ("context", "position", "exposure", "clicks", "impressions", "cluster")
    rows = np.isin(sample.cluster, queries)
    return replace(
        sample,
        unit=np.unique(sample.unit[rows], return_inverse=True)[1],
        **{name: getattr(sample, name)[rows] for name in names},
    )


OBJECTIVES = {
    "clickshare": ClickShare,
    "allpairs": AllPairs,
    "allpairs-min": lambda sample: AllPairs(sample, weighting="min"),
    "allpairs-mlp": lambda sample: AllPairs(sample, relevance="mlp", width=2),
    "allpairs-layer": lambda sample: AllPairs(sample, relevance="mlp", width=0),
    "allpairs-squares": lambda sample: AllPairs(sample, relevance="squares"),
    "allpairs-free": lambda sample: AllPairs(sample, relevance="free"),
}


@pytest.mark.parametrize("change", [renumbered, within_units_reversed])
@pytest.mark.parametrize("name", ["clickshare", "allpairs-min"])
def test_the_order_of_rows_and_units_does_not_matter(name: str, change: Any) -> None:
    sample = random_sample(3)
    before, after = (OBJECTIVES[name](s) for s in (sample, change(sample)))
    params = {part: array + 0.1 for part, array in before.init(np.random.default_rng(0)).items()}
    expected = value(before, params, log_h(sample), sample)
    assert value(after, params, log_h(sample), change(sample)) == pytest.approx(expected, rel=1e-12)


def test_click_share_does_not_see_how_often_a_unit_was_shown() -> None:
    sample = random_sample(3)
    factor = np.random.default_rng(0).exponential(size=sample.n_units)[sample.unit]
    scaled = replace(sample, exposure=sample.exposure * factor)
    expected = value(ClickShare(sample), {}, log_h(sample), sample)
    assert value(ClickShare(scaled), {}, log_h(sample), scaled) == pytest.approx(expected, rel=1e-12)


def test_clicks_of_a_unit_may_be_split_over_two() -> None:
    sample = random_sample(3)
    some = np.random.default_rng(0).binomial(sample.clicks, 0.5)
    parts = stacked(replace(sample, clicks=some), replace(sample, clicks=sample.clicks - some))
    expected = value(ClickShare(sample), {}, log_h(sample), sample)
    assert value(ClickShare(parts), {}, log_h(sample), parts) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["clickshare", "allpairs"])
def test_weights_leave_out_and_duplicate_queries(name: str) -> None:
    sample = random_sample(3)
    weights = [0.0, 1.0, 2.0, 1.0, 0.0]
    copied = stacked(of_queries(sample, [1, 2, 3]), of_queries(sample, [2]))
    objective, copies = OBJECTIVES[name](sample), OBJECTIVES[name](copied)
    params = objective.init(np.random.default_rng(0))
    weighted = value(objective, params, log_h(sample), sample, weights)
    assert weighted == pytest.approx(value(copies, params, log_h(sample), copied), rel=1e-12)


# AllPairs


def impressions_of(sample: Sample) -> list[tuple[int, int, int, int, int]]:
    """Return the log L = {(x, d, k, c)} behind a sample, with the query: one tuple per impression."""
    return [
        (row["context"], row["unit"], row["position"], int(i < row["clicks"]), row["cluster"])
        for row in rows_of(sample)
        for i in range(row["impressions"])
    ]


def brute_force_all_pairs(sample: Sample, log_p: np.ndarray, g: Any, weighting: str, weights: Any) -> float:
    """Transcribe equation (obj) of the paper: Σ_j Σ_{k≠k'} ĉ log(h g) + ¬ĉ log(1 − h g), g(k, k', x) as given."""
    log = impressions_of(sample)
    q = {(row["unit"], row["position"]): row["exposure"] for row in rows_of(sample)}
    shown = Counter((d, k) for _, d, k, _, _ in log)
    total = 0.0
    for x, d, k_j, c, query in log:
        for k in range(len(POSITIONS)):
            for other in range(len(POSITIONS)):
                in_set = (d, k) in q and (d, other) in q
                if k == other or k_j != k or not in_set:
                    continue
                n, m = shown[d, k], shown[d, other]
                omega = {"paper": 1.0, "min": min(n, m), "harmonic": n * m / (n + m)}[weighting]
                y = math.exp(log_p[x, k]) * g(k, other, x)
                label, no_label = c / q[d, k], (1 - c) / q[d, k]
                total += weights[query] * omega * (label * math.log(y) + no_label * math.log(1 - y))
    return total


@pytest.mark.parametrize("weighting", ["paper", "min", "harmonic"])
@pytest.mark.parametrize(("relevance", "width"), [("constant", 3), ("mlp", 3), ("mlp", 0), ("squares", 3)])
@pytest.mark.parametrize("design", [False, True])
def test_all_pairs_is_the_papers_equation(design: bool, relevance: Any, width: int, weighting: Any) -> None:
    sample = random_sample(7, design=design)
    random = np.random.default_rng(11)
    weights = random.exponential(size=5)
    objective = AllPairs(sample, relevance=relevance, weighting=weighting, width=width)
    params = {name: a + random.normal(size=a.shape) for name, a in objective.init(random).items()}
    pairs = {pair: column for column, pair in enumerate(zip(*objective.pairs.tolist(), strict=True))}

    def r(k: int, other: int, x: int) -> float:
        column = pairs[min(k, other), max(k, other)]
        if relevance == "constant":
            return sigmoid(params["c"][column])
        inputs = sample.x[x]
        if relevance == "squares":
            return sigmoid(float(np.append(inputs, inputs**2 - 1) @ params["v"][:, column]) + params["c"][column])
        if width:
            inputs = [sigmoid(float(inputs @ params["A"][:, h]) + params["a"][h]) for h in range(width)]
        column += len(pairs) * (k > other)
        return sigmoid(float(np.dot(inputs, params["v"][:, column])) + params["c"][column])

    expected = brute_force_all_pairs(
        sample, log_h(sample), lambda k, other, x: (r(k, other, x) + r(other, k, x)) / 2, weighting, weights
    )
    assert value(objective, params, log_h(sample), sample, weights) == pytest.approx(expected, rel=1e-9)
    penalised = [params[name] ** 2 for name in ("A", "v") if name in params]
    assert float(objective.penalty(params)) == pytest.approx(sum(a.sum() for a in penalised) / 2)


def test_proposition_1_expected_labels_are_examination_times_average_relevance() -> None:
    """Enumerate every choice of ranker and every pattern of clicks of one query shown once (the paper's figure)."""
    rankings = [(0, 1, 2, 3, 4), (1, 0, 2, 4, 3), (1, 2, 0, 4, 3)]
    traffic = np.array([1, 2, 3]) / 6
    p, r = np.array([0.9, 0.7, 0.5, 0.4, 0.2]), np.array([0.8, 0.3, 0.6, 0.1, 0.5])
    q = np.zeros((5, 5))  # document × position
    for ranking, share in zip(rankings, traffic, strict=True):
        q[list(ranking), range(5)] += share
    doc, position = np.nonzero((q > 0) & ((q > 0).sum(1) > 1)[:, None])
    unit = np.unique(doc, return_inverse=True)[1]
    zeros = np.zeros(len(doc), dtype=int)
    expected: dict[tuple[int, int], np.ndarray] = defaultdict(lambda: np.zeros(2))
    for ranking, share in zip(rankings, traffic, strict=True):
        at = {d: k for k, d in enumerate(ranking)}
        shown = np.array([at[d] == k for d, k in zip(doc, position, strict=True)], dtype=int)
        for clicks in itertools.product([0, 1], repeat=5):
            chance = share * np.prod([p[at[d]] * r[d] if c else 1 - p[at[d]] * r[d] for d, c in enumerate(clicks)])
            clicked = shown * np.array(clicks)[doc]
            sample = Sample(
                (1, 2, 3, 4, 5), np.zeros((1, 0)), unit, zeros, position, q[doc, position], clicked, shown, zeros, 1
            )
            pairs = AllPairs(sample).rows
            for (k, other), yes, no in zip(pairs.position.T, pairs.clicked.T, pairs.passed.T, strict=True):
                expected[int(k), int(other)] += chance * np.array([yes[0], no[0]])
                expected[int(other), int(k)] += chance * np.array([yes[1], no[1]])
    assert len(expected) == 8  # 1-2, 1-3, 2-3 and 4-5, either way round
    for (k, other), labels in expected.items():
        both = (q[:, k] > 0) & (q[:, other] > 0)
        y = p[k] * r[both].mean()
        np.testing.assert_allclose(labels / both.sum(), [y, 1 - y], rtol=1e-12)


def test_all_pairs_refuses_what_it_cannot_use() -> None:
    with pytest.raises(InputError, match="one context per unit"):
        AllPairs(random_sample(unit_kind="query"))
    with pytest.raises(InputError, match="relevance model 'tree'"):
        AllPairs(random_sample(), relevance="tree")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="weighting 'max'"):
        AllPairs(random_sample(), weighting="max")  # type: ignore[arg-type]


# Gradients


@pytest.mark.parametrize(
    ("curve_name", "name"),
    [
        *itertools.product(CURVES, ["clickshare", "allpairs"]),
        ("linear", "clickshare-rows"),
        ("linear", "allpairs-mlp"),
        *itertools.product(["mlp"], ["allpairs-mlp", "allpairs-layer", "allpairs-squares", "allpairs-free"]),
    ],
)
def test_gradients_are_those_of_finite_differences(curve_name: str, name: str) -> None:
    sample = random_sample(1, unit_kind="query" if name == "clickshare-rows" else "context", units=6, k=3)
    objective = OBJECTIVES[name.removesuffix("-rows")](sample)
    curve = make_curve(curve_name, POSITIONS[:3], 2, 2, **SHAPES.get(curve_name, {}))
    fit = Fit(curve, objective, sample)
    random = np.random.default_rng(4)
    start = fit.starts(1, seed=3)[0]
    start += 0.3 * random.normal(size=start.shape)
    directions, step = random.normal(size=(3, len(start))), 1e-5
    points = np.concatenate([[start], start + step * directions, start - step * directions])
    values, gradients = fit.value_and_grad(points, np.tile(random.exponential(size=5), (7, 1)), np.full(7, 0.7))
    np.testing.assert_allclose((values[1:4] - values[4:]) / (2 * step), directions @ gradients[0], rtol=1e-4, atol=1e-8)


def no_clicks(sample: Sample) -> Sample:
    return replace(sample, clicks=np.zeros_like(sample.clicks))


def all_clicks(sample: Sample) -> Sample:
    return replace(sample, clicks=sample.impressions)


def unequal_exposures(sample: Sample) -> Sample:
    return replace(sample, exposure=np.where(np.arange(len(sample.unit)) % 2 == 0, 1e-12, 1.0))


@pytest.mark.parametrize("name", ["clickshare", "allpairs", "allpairs-squares", "allpairs-free"])
def test_gradients_are_finite_at_the_corners(name: str) -> None:
    """Also where h g → 1 and → 0: parameters of ±50."""
    sample = random_sample(2, units=6)
    for corner in (no_clicks, all_clicks, unequal_exposures):
        fit = Fit(make_curve("linear", POSITIONS, 1, 2), OBJECTIVES[name](corner(sample)), sample)
        start = fit.starts(1, seed=0)[0]
        random = np.random.default_rng(0)
        points = np.stack([start, 0 * start + 50, 0 * start - 50, random.choice([-50, 50], size=start.shape)])
        for numbers in fit.value_and_grad(points, np.ones((4, 5)), np.full(4, 0.1)):
            assert np.isfinite(numbers).all()
        assert all(np.isfinite(fit.information(point)).all() for point in points)


# Information


def expected_clicks(fit: Fit, flat: np.ndarray) -> Fit:
    """Return a fit of the clicks that its own parameters expect; free relevance is ½."""
    objective, params = copy(fit.objective), fit.params(flat)
    log_p = fit.curve.log_examination(params["curve"], fit.x)
    own = objective.formula(params["objective"], fit.x) if objective.columns else None
    if isinstance(objective, ClickShare):
        cells = objective.cells = copy(objective.cells)
        cells.clicks = cells.clicks - cells.shares_of(objective.logits(log_p, own)).residual
    else:
        rows = objective.rows
        h = np.exp(log_p)[rows.context, rows.position]
        g = np.full(len(rows.context), 0.5)
        if own is not None:
            ways = np.split(1 / (1 + np.exp(-own)), objective.columns // objective.pairs.shape[1], axis=1)
            g = np.mean([way[rows.context, rows.pair] for way in ways], axis=0)
        shown = rows.clicked + rows.passed
        objective.rows = replace(rows, clicked=shown * h * g, passed=shown * (1 - h * g))
    return Fit(fit.curve, objective, Sample(fit.curve.positions, fit.x, *[np.zeros(0, int)] * 6, np.zeros(0, int), 5))


@pytest.mark.parametrize("name", [*(name for name in OBJECTIVES if name != "allpairs-min"), "clickshare-rows"])
@pytest.mark.parametrize("curve_name", ["power", "mlp"])
def test_information_is_the_curvature_where_clicks_are_as_expected(curve_name: str, name: str) -> None:
    sample = random_sample(1, unit_kind="query" if name == "clickshare-rows" else "context", units=20)
    curve = make_curve(curve_name, POSITIONS, 1, 2, **SHAPES.get(curve_name, {}))
    fit = Fit(curve, OBJECTIVES[name.removesuffix("-rows")](sample), sample)
    random = np.random.default_rng(4)
    flat = fit.starts(1, seed=3)[0]
    flat += 0.3 * random.normal(size=flat.shape)
    fit, weights, step = expected_clicks(fit, flat), random.exponential(size=5), 1e-5
    around = np.concatenate([flat + step * np.eye(fit.size), flat - step * np.eye(fit.size)])
    gradients = fit.scale * fit.value_and_grad(around, np.tile(weights, (len(around), 1)), np.zeros(len(around)))[1]
    curvature = (gradients[: fit.size] - gradients[fit.size :]) / (2 * step)
    found = fit.information(flat, weights)
    assert np.abs(found).max() > 1
    np.testing.assert_allclose(found, curvature, rtol=1e-4, atol=1e-6 * np.abs(found).max())


def test_chances_that_are_cut_at_certainty_tell_nothing() -> None:
    """With p_2 above 1 its rows do not change with it, so that they curve nothing either."""
    sample = random_sample(7)
    fit = Fit(make_curve("constant", POSITIONS, 1, 2), AllPairs(sample), sample)
    flat = np.concatenate([[3.0, -1.0, -1.5], np.full(fit.size - 3, 2.0)])
    below = flat - np.eye(fit.size)[0]
    assert fit.value_and_grad(np.stack([flat, below]), np.ones((2, 5)), np.zeros(2))[1][:, 0].tolist() == [0.0, 0.0]
    assert (fit.information(flat)[0] == 0).all()
