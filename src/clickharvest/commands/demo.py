"""The command `demo`: a log with known truth, what `fit` says of it, and a ranker that the clicks make better."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clickharvest.commands.declaring import option
from clickharvest.commands.options import SeedOption
from clickharvest.commands.output import check_folder, tell
from clickharvest.commands.progress import show_progress
from clickharvest.commands.text import columns_read, curve_table, paragraph, problems, results_compared, wrapped
from clickharvest.errors import ClickharvestWarning
from clickharvest.files import atomic_folder

if TYPE_CHECKING:
    from clickharvest.checks import Budget, Checked
    from clickharvest.harvesting.interventions import Interventions
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities
    from clickharvest.rank.rankers import TrainedRanker
    from clickharvest.simulate.shop import Shop

PAGES = 50_000
"""Pages of the log; more make the budget smaller, and the demo slower."""
COST, CLIP = 1.0, 0.01
"""Cost of errors and least propensity to divide by, the same for both rankers."""
LOG, TRUTH, DOCUMENTS = "clicks.parquet", "truth.parquet", "documents.parquet"
MODEL, RANKER = "model.safetensors", "ranker.json"
FILES = (LOG, TRUTH, DOCUMENTS, MODEL, RANKER)
TOUR = Path("demo")


@dataclass(frozen=True, eq=False)
class _Fit:
    """The log, what was compared, the fitted model and what its checks found."""

    log: ClickLog
    interventions: Interventions
    model: Propensities
    checked: Checked


def demo(
    program: typer.Context,
    folder: Annotated[
        Path | None,
        option(
            "Keep the log, its truth, the model and the ranker there (--long: demo by default).",
            "FOLDER",
            flags=("--output", "-o"),
        ),
    ] = None,
    long: Annotated[bool, option("Run every command on files, up to a report: a tour of minutes.")] = False,
    seed: SeedOption = 0,
) -> None:
    """Show on a simulated log what can be learned from clicks, beside the truth.

    Estimates how examination falls with position, tells how far off that can be, and trains a ranker on the weighted
    clicks. The truth is known, as the log is simulated.

    Examples:

      clickharvest demo

      clickharvest demo --long -o demo
    """
    if folder is not None and (not long or folder.is_file()):  # the tour writes beside other files
        check_folder(folder, "the demo", FILES)
    if long:
        from clickharvest.commands.tour import tour

        tour(program, TOUR if folder is None else folder, seed)
        return
    from clickharvest.simulate.shop import simulate_shop

    with show_progress("Simulating"):
        shop = simulate_shop(pages=PAGES, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickharvestWarning)  # the findings say the same
        fit = _fit(shop)
        weighted, raw = _train(shop, fit)
    if folder is not None:
        _write(folder, shop, fit, weighted)
    lines = [
        "A shop's search, simulated: three rankers in an A/B test, with known truth.",
        paragraph("read", columns_read(fit.log)),
        paragraph("compared", results_compared(fit.interventions)),
        "",
        *_curve(shop, fit.model),
        "",
        *_budget(shop, fit),
        "",
        *_rankers(shop, weighted, raw),
        "",
        *_next(folder),
    ]
    tell("\n".join(lines))


def _fit(shop: Shop) -> _Fit:
    """Fit and check the log of a shop as `clickharvest fit` does."""
    from clickharvest.checks import check_fit
    from clickharvest.click_models.examination import Examination
    from clickharvest.logs.reading import read_log

    log = read_log(shop.log, context=["device"])
    estimator = Examination(progress=show_progress)
    interventions = estimator.harvest(log)
    model = estimator.fit(interventions)
    with show_progress("Checking"):
        checked = check_fit(log, model)
    model = replace(model, info=dict(model.info) | checked.info())
    return _Fit(log, interventions, model, checked)


def _train(shop: Shop, fit: _Fit) -> tuple[TrainedRanker, TrainedRanker]:
    """Return a ranker trained on clicks weighted by the fitted model, and one trained on clicks at face value."""
    from clickharvest.rank.data import at_face_value
    from clickharvest.rank.learners import train_ranker
    from clickharvest.rank.tables import read_clicks

    clicks = read_clicks(fit.log, shop.documents, fit.model)
    weighted, raw = (
        train_ranker(data, names=clicks.features, C=COST, clip=CLIP)
        for data in (clicks.data, at_face_value(clicks.data))
    )
    return replace(weighted, columns=clicks.columns), raw


def _curve(shop: Shop, model: Propensities) -> Iterator[str]:
    """Yield the table of the curve that `fit` prints, with the truth below each of its rows."""
    _, header, *rows = curve_table(model)
    yield "examination (how often users look), relative to position 1, 95 % interval"
    yield header
    starts = {int(position[0]): position.start() for position in re.finditer(r"\d+", header)}
    for row in rows:
        yield row
        device = row.split()[0]
        if device in shop.devices:
            yield _true_row(starts, shop.examination[shop.devices.index(device)].tolist())


def _true_row(starts: dict[int, int], curve: list[float]) -> str:
    """Return a row of a table with the true curve, given where the column of each position starts.

    Example:
        >>> _true_row({2: 9, 4: 16}, [1.0, 0.5, 0.3, 0.25])
        '  truth  .50    .25'
    """
    line = "  truth"
    for position, start in starts.items():
        share = curve[position - 1]
        line = f"{line.ljust(start)}{share:.{2 if share >= 0.1 else 3}f}".replace(" 0.", " .")
    return line


def _budget(shop: Shop, fit: _Fit) -> Iterator[str]:
    """Yield how far off the curve can be, how far off it is, and what is wrong with the log if anything."""
    verdict, *more = fit.checked.budget.lines()
    yield from wrapped(f"{verdict} (in truth {_percent(_true_error(shop, fit.model, fit.checked.budget))})")
    yield from wrapped(f"causes of error that the log does not rule out: {'; '.join(more)}")
    yield from problems(fit.checked.findings)


def _true_error(shop: Shop, model: Propensities, budget: Budget) -> float:
    """Return how far off the curve is at the worst position and device, as a fraction."""
    import numpy as np

    predicted = model.predict({"device": list(shop.devices)})
    worst = 0.0
    for position in budget.positions:
        ratio = shop.examination[:, position - 1] / predicted.propensity[:, predicted.positions.index(position)]
        worst = max(worst, float(np.abs(np.log(ratio)).max()))
    return float(np.expm1(worst))


def _rankers(shop: Shop, weighted: TrainedRanker, raw: TrainedRanker) -> Iterator[str]:
    """Yield how good rankers are by the truth: the best that was shown, and those trained on the clicks."""
    shown = max(shop.first_relevance(weights) for weights in shop.shown)
    corrected, naive, best = (shop.first_relevance(weights) for weights in (weighted.model, raw.model, shop.best))
    yield f"How often users want the first result, in {len(shop.relevance):,} queries outside the log:"
    yield f"  {_percent(shown)}  the best of the rankers in the test"
    yield f"  {_percent(naive)}  a ranker trained on these clicks as they are"
    yield f"  {_percent(corrected)}  a ranker trained on these clicks, weighted by 1 / examination"
    yield _conclusion(corrected, naive, shown, best)


def _conclusion(weighted: float, raw: float, shown: float, best: float) -> str:
    """Return which ranker is the best by the truth.

    Example:
        >>> _conclusion(0.756, 0.72, 0.62, 0.761)
        'Weighting the clicks makes the best ranker (these features allow 76 % at most).'
        >>> _conclusion(0.72, 0.74, 0.62, 0.76)
        'Weighting the clicks beats what was shown, but not the clicks as they are.'
        >>> _conclusion(0.6, 0.59, 0.62, 0.76)
        'Weighting the clicks makes no better ranker here than what was shown.'
    """
    if weighted <= shown:
        return "Weighting the clicks makes no better ranker here than what was shown."
    if weighted <= raw:
        return "Weighting the clicks beats what was shown, but not the clicks as they are."
    return f"Weighting the clicks makes the best ranker (these features allow {_percent(best)} at most)."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _next(folder: Path | None) -> Iterator[str]:
    """Yield commands to try."""
    if folder is None:
        yield "next: clickharvest demo --long                           # every command"
    else:
        yield f"next: clickharvest report {shlex.quote(str(folder / MODEL))} -o report.html"
    yield "      clickharvest check YOUR.parquet --context device   # a log of your own"


def _write(folder: Path, shop: Shop, fit: _Fit, ranker: TrainedRanker) -> None:
    """Write the log, its truth, the model and the ranker to a folder, all of them or none."""
    import pyarrow.parquet as pq

    with atomic_folder(folder, lambda: check_folder(folder, "the demo", FILES)) as partial:
        pq.write_table(shop.log, partial / LOG)
        pq.write_table(shop.truth(), partial / TRUTH)
        pq.write_table(shop.documents, partial / DOCUMENTS)
        fit.model.save(partial / MODEL)
        ranker.save(partial / RANKER)
