"""table-size, fig-complex, fig-complexcpbm, and their family: the arXiv-like log, its sizes and its curves.

The curves are examination of complex and of simple queries with 95 % bands by query. From the swap experiment every
kind of query has a PBM of its own; from the A/B pages one CPBM has the kind as its only feature. The true curve is the
mean of p_k(x) over the queries of a kind; it enters beside the estimate, nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.estimation import CPBM, PBM
from clickharvest.harvesting import Interventions
from clickharvest.model import Prediction
from clickharvest.simulate import PAPER_SIZES, QUERIES, ArxivSimulation, simulate_arxiv
from experiments.arxiv_bands import all_pairs_bands, swap_ratio_bands
from experiments.charts import band_chart
from experiments.experiment import Check, Experiment, Headline, Plan, Row
from experiments.models import CLICKSHARE
from experiments.runs import Numbers, Results, Run

FAMILY = WORLD = "arxiv"
KINDS = {"complex": True, "simple": False}
"""The kinds of queries, and whether they are complex."""
SWAP_RATIO, ALL_PAIRS = "swap ratio", "AllPairs"
CURVE = ("propensity", "lower", "upper", "truth")
BY_SWAPS = ((SWAP_RATIO, "swap"), (CLICKSHARE, "swap"))
BY_PAGES = ((ALL_PAIRS, "ab"), (CLICKSHARE, "ab"))
"""Models, and the part of the log that they are fitted to."""
TOLERANCE = 0.05
"""How far the number of clicks may be from the paper's, as a share of it."""
LEAST_AGREEING = 0.9
"""Share of positions at which two bands must overlap for curves to count as the same."""


def measure(run: Run) -> Numbers:
    """Count queries and clicks by kind and part, or return the curve of each kind and the mean width of its band."""
    simulation = arxiv_log(run)
    return _sizes(simulation) if "model" not in run.fit else _curves(run, simulation)


def arxiv_log(run: Run) -> ArxivSimulation:
    """Return the simulated log of a run; the last one is kept."""
    return _simulated(run.log["queries"], run.seed)


@lru_cache(maxsize=1)
def _simulated(queries: int, seed: int) -> ArxivSimulation:
    return simulate_arxiv(queries=queries, seed=seed)


def _sizes(simulation: ArxivSimulation) -> Numbers:
    numbers: Numbers = {}
    for kind, part in PAPER_SIZES:
        pages = simulation.pages(part) & (simulation.is_complex == KINDS[kind])
        numbers[f"{kind}_{part}_queries"] = int(pages.sum())
        numbers[f"{kind}_{part}_clicks"] = int(simulation.clicks[pages].sum())
    return numbers


def _curves(run: Run, simulation: ArxivSimulation) -> Numbers:
    interventions = simulation.interventions(part=run["part"], features=["complex"])
    numbers: Numbers = {}
    for kind, is_complex in KINDS.items():
        numbers[f"{kind}_clicks"] = int(interventions.clicks[interventions.contexts["complex"] == is_complex].sum())
    for kind, prediction in _predictions(run, interventions).items():
        curve = {name: np.full(simulation.positions, np.nan) for name in CURVE}
        for name in CURVE[:3]:
            curve[name][np.array(prediction.positions) - 1] = getattr(prediction, name)[0]
        curve["truth"] = simulation.curve(is_complex=KINDS[kind])
        for name, values in curve.items():
            numbers[f"{kind}_{name}"] = [float(value) if np.isfinite(value) else None for value in values]
        numbers[f"{kind}_width"] = float(np.nanmean((curve["upper"] - curve["lower"])[1:]))
    return numbers


def _predictions(run: Run, interventions: Interventions) -> dict[str, Prediction]:
    """Return a prediction of one row for each kind of query."""
    draws = {"replicates": run["replicates"], "seed": run.seed}
    if run["part"] == "ab":
        if run["model"] == ALL_PAIRS:
            fit = all_pairs_bands(interventions, width=0, **draws)
        else:
            model = CPBM(curve="linear", penalty=0.0, intervals="bootstrap", **draws)
            fit = model.fit(interventions.clicked()).propensities_
        return {kind: fit.predict({"complex": [int(is_complex)]}) for kind, is_complex in KINDS.items()}
    predictions = {}
    for kind, is_complex in KINDS.items():
        clicked = interventions.take(interventions.contexts["complex"] == is_complex).clicked()
        if run["model"] == SWAP_RATIO:
            predictions[kind] = swap_ratio_bands(clicked, **draws).predict()
        else:
            predictions[kind] = PBM(intervals="bootstrap", **draws).fit(clicked).predict()
    return predictions


def size_runs(plan: Plan) -> list[Run]:
    """Return logs of full size, they take seconds."""
    return [Run(FAMILY, WORLD, seed, {"queries": QUERIES}) for seed in range(1 if plan.quick else 6)]


def curve_runs(plan: Plan, models: Sequence[tuple[str, str]]) -> list[Run]:
    """Return runs of models on parts of the log; quick ones of fewer queries and replicates."""
    queries, replicates = (60_000, 50) if plan.quick else (QUERIES, 1_000)
    fits = [{"model": model, "part": part, "replicates": replicates} for model, part in models]
    return [Run(FAMILY, WORLD, 0, {"queries": queries}, fit) for fit in fits]


def size_rows(results: Results) -> list[Row]:
    """Return one row per kind of query and part."""
    return [
        {
            "queries": kind,
            "part": part,
            "paper's queries": queries,
            "ours": round(results.mean(f"{kind}_{part}_queries")),
            "paper's clicks": clicks,
            "our clicks": results.mean(f"{kind}_{part}_clicks"),
            "sd": results.sd(f"{kind}_{part}_clicks"),
        }
        for (kind, part), (queries, clicks) in PAPER_SIZES.items()
    ]


def size_headlines(results: Results) -> list[Headline]:
    """Return the clicks of each kind and part."""
    clicks = {
        f"clicks, {kind}, {part}": (f"{kind}_{part}_clicks", paper) for (kind, part), (_, paper) in PAPER_SIZES.items()
    }
    return [
        Headline(what, paper, results.mean(name), runs=len(results), ours_sd=results.sd(name))
        for what, (name, paper) in clicks.items()
    ]


def size_checks(results: Results) -> list[Check]:
    """Return whether the log has the paper's sizes: queries exactly, clicks closely."""
    exact, furthest = True, 0.0
    for (kind, part), (queries, clicks) in PAPER_SIZES.items():
        exact &= set(results.values(f"{kind}_{part}_queries")) == {queries}
        furthest = max([furthest, *(abs(n / clicks - 1) for n in results.values(f"{kind}_{part}_clicks"))])
    return [
        Check("queries of every kind and part are the paper's", exact, f"in {len(results)} logs"),
        Check(
            f"clicks are within {TOLERANCE:.0%} of the paper's",
            furthest <= TOLERANCE,
            f"at most {100 * furthest:.1f} % away",
        ),
    ]


def curve_of(results: Results, model: tuple[str, str], kind: str) -> dict[str, NDArray[np.float64]]:
    """Return the arrays `CURVE` [K] that a run measured, NaN where there is no estimate."""
    numbers = results.where(model=model[0], part=model[1])[0].numbers
    return {name: np.array(numbers.get(f"{kind}_{name}", [None]), np.float64) for name in CURVE}


def curve_rows(results: Results) -> list[Row]:
    """Return one row per kind of query and position, with estimate and band of each model and part."""
    rows = []
    for kind in KINDS:
        curves = {f"{r.run['model']} ({r.run['part']})": curve_of(results, _model(r.run), kind) for r in results}
        for k, truth in enumerate(next(iter(curves.values()))["truth"]):
            row: Row = {"queries": kind, "position": k + 1, "truth": float(truth)}
            for name, curve in curves.items():
                row[name] = float(curve["propensity"][k])
                row[f"{name} band"] = f"{curve['lower'][k]:.3f}–{curve['upper'][k]:.3f}"
            rows.append(row)
    return rows


def curve_chart(results: Results) -> Any:
    """Return the curves with their bands, one panel per model, the truth as a dashed line."""
    points: list[dict[str, Any]] = []
    for r in results:
        for kind in KINDS:
            curve = curve_of(results, _model(r.run), kind)
            for k in range(len(curve["truth"])):
                values = {name: None if np.isnan(curve[name][k]) else float(curve[name][k]) for name in CURVE}
                model = f"{r.run['model']} ({r.run['part']})"
                points.append({"model": model, "queries": kind, "position": k + 1, **values})
    return band_chart(points)


def _model(run: Run) -> tuple[str, str]:
    return run["model"], run["part"]


def complex_headlines(results: Results) -> list[Headline]:
    """Return the mean examination below position 1 of both kinds."""
    lines = []
    for kind in KINDS:
        ratio, share = (float(curve_of(results, model, kind)["propensity"][1:].mean()) for model in BY_SWAPS)
        lines.append(Headline(f"mean p_k/p_1 beyond rank 1, {kind}", None, ratio, share))
    return lines


def complex_checks(results: Results) -> list[Check]:
    """Return the paper's claims: the curves differ, and simple queries are read further down."""
    checks = []
    for model in BY_SWAPS:
        simple, complex_ = (curve_of(results, model, kind) for kind in ("simple", "complex"))
        above = simple["propensity"][1:] > complex_["propensity"][1:]
        apart = simple["lower"][1:] > complex_["upper"][1:]
        crossed = int(np.sum(simple["upper"][1:] < complex_["lower"][1:]))
        checks += [
            Check(
                f"{model[0]}: simple queries are read further down",
                bool(above.all()),
                f"simple above complex at {above.sum()} of {len(above)} positions beyond the first",
            ),
            Check(
                f"{model[0]}: the curves differ, their 95 % bands do not overlap at half of the positions or more",
                int(apart.sum()) >= len(apart) / 2 and crossed == 0,
                f"bands apart at {apart.sum()} of {len(apart)} positions, the other way round at {crossed}",
            ),
        ]
    return checks


def width(results: Results, model: tuple[str, str], kind: str) -> float:
    """Return the mean width of the band of a curve."""
    return results.where(model=model[0], part=model[1]).mean(f"{kind}_width")


def cpbm_headlines(results: Results) -> list[Headline]:
    """Return how wide the bands are, in per cent of the swap's."""
    lines = []
    for kind in KINDS:
        pairs, share = (100 * width(results, model, kind) / width(results, BY_SWAPS[0], kind) for model in BY_PAGES)
        lines.append(Headline(f"band width, % of the swap's, {kind}", None, pairs, share))
    return lines


def cpbm_checks(results: Results) -> list[Check]:
    """Return the paper's claims: the same curves, with narrower bands."""
    checks = []
    for model in BY_PAGES:
        agree = []
        widths = {kind: (width(results, model, kind), width(results, BY_SWAPS[0], kind)) for kind in KINDS}
        for kind in KINDS:
            gold, curve = curve_of(results, BY_SWAPS[0], kind), curve_of(results, model, kind)
            agree.append(((gold["lower"] <= curve["upper"]) & (curve["lower"] <= gold["upper"]))[1:])
        same = np.concatenate(agree)
        checks += [
            Check(
                f"{model[0]}: the curves are those of the swaps, bands overlap at {LEAST_AGREEING:.0%} of the "
                "positions",
                bool(same.mean() >= LEAST_AGREEING),
                f"they overlap at {same.sum()} of {len(same)} positions beyond the first",
            ),
            Check(
                f"{model[0]}: bands are narrower than the swap's, for both kinds of queries",
                all(narrow < swap for narrow, swap in widths.values()),
                "; ".join(f"{kind} {narrow:.3f} against {swap:.3f}" for kind, (narrow, swap) in widths.items()),
            ),
        ]
    return checks


EXPERIMENTS = [
    Experiment(
        id="table-size",
        runs=size_runs,
        rows=size_rows,
        headlines=size_headlines,
        checks=size_checks,
        world=WORLD,
    ),
    Experiment(
        id="fig-complex",
        runs=lambda plan: curve_runs(plan, BY_SWAPS),
        rows=curve_rows,
        headlines=complex_headlines,
        checks=complex_checks,
        chart=curve_chart,
        world=WORLD,
    ),
    Experiment(
        id="fig-complexcpbm",
        runs=lambda plan: curve_runs(plan, (BY_SWAPS[0], *BY_PAGES)),
        rows=curve_rows,
        headlines=cpbm_headlines,
        checks=cpbm_checks,
        chart=curve_chart,
        world=WORLD,
    ),
]
