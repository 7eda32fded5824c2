"""Judgments: how relevant every document is to every query, from clicks with examination divided out.

The engine counts, for every query and document, clicks C and E = Σ p_k(x) over its impressions, so that C / E is the
rate of clicks on it at the anchor; `shrinkage` draws that towards the means of its query and of all, and tells an
interval. Click-through (C over impressions) and clicks over expected clicks (COEC) mix relevance with the position: the
first says that what stood low is bad, the second divides by how often *other* documents were clicked there, and so
calls the documents average that a good ranker puts on top.

How uncertain E is, on the log scale: with w_k the share of E at position k, (Σ_k w_k sd_k)² from the model's own error
bars, as if the errors of all positions went together, and σ² Σ_k w_k² where the model tells (`query_variance`) how far
users of single queries deviate from its curve at single positions.

Of affine clicks relevance is what `corrected` makes of them; documents that were shown only at positions that the model
tells nothing of are left out. The rate of clicks at the anchor has then no zero that is known: of what all results get
there, the model tells what it is at least (`AffineModel.floor`), and grades are multiples of what a mean document has
above that.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.affine import JOINED, join_lines
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.judging.corrected import Corrected, shrink_corrected
from clickharvest.judging.shrinkage import Prior, Shrunk, shrink
from clickharvest.logs.sums import steady
from clickharvest.model.propensities import Propensities
from clickharvest.weights.scoring import count_cells, model_context, score_cells
from clickharvest.words import count

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog

Scale = Literal["corpus", "query", "rate"]
"""What cut-offs of grades are multiples of: the mean relevance of all documents, that of a query's, or nothing."""

CUTOFFS = (0.5, 1.0, 2.0)
"""Least relevance of the grades 1, 2 and 3, in multiples of the mean: half of it, the mean, twice the mean."""
TINY = 1e-12
"""Least mean that grades are multiples of."""
COLUMNS = ("query", "doc", "relevance", "lower", "upper", "grade", "clicks", "impressions", "effective_impressions",
           "supported")  # fmt: skip
"""The columns of judgments."""


@dataclass(frozen=True, eq=False)
class Judgments:
    """The relevance of every query and document that a log has shown.

    Attributes:
        table: Arrow table of `query`, `doc`; `relevance`, the rate of clicks at the anchor, and its interval `lower`,
            `upper`; `grade` from 0 to 3; `clicks`, `impressions`, and `effective_impressions`, as many at the anchor
            would have been examined as often; `supported`, the share of the impressions whose propensity the model
            has an estimate of its own for. Sorted by query, then from the most relevant document on.
        prior: what relevance was shrunk towards.
        cutoffs: least relevance of the grades 1, 2 and 3, in units of `scale`.
        scale: what these are multiples of.
        level: level of the intervals.
        left_out: documents without a judgment: those of affine clicks that were shown only where the model tells
            nothing.
    """

    table: pa.Table
    prior: Prior
    cutoffs: tuple[float, ...]
    scale: Scale
    level: float
    left_out: int = 0

    @property
    def grades(self) -> tuple[int, ...]:
        """How many documents have the grades 0, 1, …"""
        counts = np.bincount(self.table["grade"].to_numpy(), minlength=len(self.cutoffs) + 1)
        return tuple(int(n) for n in counts)

    @property
    def supported(self) -> float:
        """Share of all impressions that the model has an estimate of its own for."""
        impressions = self.table["impressions"].to_numpy()
        return float(np.average(self.table["supported"].to_numpy(), weights=impressions))

    def to_dict(self) -> dict[str, Any]:
        """Return what is told of them, without the table, as JSON holds it."""
        return {
            "judgments": self.table.num_rows,
            "queries": len(self.table["query"].unique()),
            "clicks": int(np.sum(self.table["clicks"].to_numpy())),
            "left_out": self.left_out,
            "supported": self.supported,
            "grades": list(self.grades),
            "cutoffs": list(self.cutoffs),
            "scale": self.scale,
            "level": self.level,
            "prior": asdict(self.prior),
        }

    def __str__(self) -> str:
        told = self.to_dict()
        of = {"corpus": " × the mean", "query": " × the query's mean", "rate": ""}[self.scale]
        graded = ", ".join(f"{n:,} of grade {grade}" for grade, n in enumerate(self.grades))
        unsupported, without = 1 - self.supported, []
        if unsupported:
            without.append(
                f"{100 * unsupported:.2g} % of their impressions are at positions or in contexts that the model has no "
                "estimate of its own for: see the column supported."
            )
        if self.left_out:
            without.append(f"Left out: {count(self.left_out, 'document')}, shown only where the model tells nothing.")
        return "\n".join(
            [
                f"Judged {count(told['judgments'], 'document')} of {count(told['queries'], 'query', 'queries')} by "
                f"{count(told['clicks'], 'click')}.",
                f"Mean relevance, the rate of clicks at the anchor: {self.prior.mean:.4g}; documents of a query vary "
                f"by {100 / np.sqrt(self.prior.within):.0f} %, queries by {100 / np.sqrt(self.prior.between):.0f} %.",
                f"Grades from {', '.join(f'{cutoff:g}' for cutoff in self.cutoffs)}{of} on: {graded}.",
                *without,
            ]
        )


def judge(
    log: ClickLog,
    propensities: Propensities | AnyAffine,
    *,
    level: float = 0.95,
    cutoffs: Sequence[float] = CUTOFFS,
    scale: Scale = "corpus",
    placement: bool = True,
) -> Judgments:
    """Judge every query and document of a log by its clicks.

    Args:
        log: the click log; its context holds the model's context columns.
        propensities: the model, of examination or affine.
        level: level of the intervals.
        cutoffs: least relevance of the grades 1, 2, …, ascending.
        scale: what they are multiples of: `"corpus"`, the mean relevance of all documents; `"query"`, the mean of the
            documents of the query, so that every query has good ones; `"rate"`, nothing: they are rates of clicks.
        placement: whether how high and how often rankers showed a document tells what it is drawn towards. Without, all
            documents of a query are drawn towards the same mean, which favours none of the rankers where clicks are
            few; but what was shown low is then overrated, and intervals cover less.

    Raises:
        InputError: cut-offs do not ascend, or context columns are missing or of another kind than in training.

    Warns:
        HarvestWarning: the model has no error bars, or the log lacks pages without a click.

    Example:
        Document b is clicked as often as a, though it stands where half as many look.

        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> from clickharvest.model.curves import make_curve
        >>> shown = {"query": ["q", "q"], "doc": ["a", "b"], "position": [1, 2], "clicks": [90, 90]}
        >>> log = read_log(pa.table(shown | {"impressions": [900, 900]}))
        >>> draws = np.log(0.5) + np.array([[-0.01], [0.01]])
        >>> curve = make_curve("constant", (1, 2), 1, 0)
        >>> model = Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), draws, "sandwich")
        >>> found = judge(log, model)
        >>> found.table.select(["doc", "effective_impressions"]).to_pydict()
        {'doc': ['b', 'a'], 'effective_impressions': [450.0, 900.0]}
        >>> found.table["relevance"].to_numpy().round(2).tolist()
        [0.2, 0.1]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from clickharvest.logs.click_log import require_log

    require_log(log)
    chosen = _checked(cutoffs, scale, level)
    if isinstance(propensities, Propensities):
        floor, exact, counted = 0.0, propensities.draws is None, _counted(log, propensities)
    else:
        floor, exact, counted = propensities.floor() or 0.0, _is_exact(propensities), _corrected(log, propensities)
    _warn(log, exact)
    # An engine adds and returns groups in any order, and the prior is learned by steps: rounded and sorted, every run
    # gives the same.
    counts = log.engine.fetch(counted, task="Counting clicks").sort_by([("query", "ascending"), ("doc", "ascending")])
    counts = steady(counts, [field.name for field in counts.schema if pa.types.is_floating(field.type)])
    if not counts.num_rows:
        raise InputError("the log has no impressions: there is nothing to judge")
    documents = counts.num_rows
    if not isinstance(propensities, Propensities):
        counts = counts.filter(pc.greater(counts["known"], 0))
    if not counts.num_rows:
        raise InputError(
            "every document was shown only where the model tells nothing: judge with a model of this log's positions "
            "and contexts"
        )
    _, query = np.unique(counts["query"].to_numpy(zero_copy_only=False), return_inverse=True)
    c, e, impressions = (counts[name].to_numpy() for name in ("clicks", "exposure", "impressions"))
    displays = impressions if isinstance(propensities, Propensities) else counts["known"].to_numpy()
    known = _placement(query, e, displays) if placement else None
    with log.engine.progress("Judging"):
        if isinstance(propensities, Propensities):
            found = _from_counts(query, counts, propensities, known, level)
        else:
            found = _from_corrected(query, counts, known, level)
    above = np.maximum(found.relevance - floor, 0.0)
    mean: NDArray[np.float64] | float = 1.0 if scale == "rate" else max(found.prior.mean - floor, TINY)
    if scale == "query":
        mean = np.maximum((np.bincount(query, above) / np.bincount(query))[query], TINY)
    rated = found.relevance if scale == "rate" else above / mean
    columns = {
        "query": counts["query"],
        "doc": counts["doc"],
        "relevance": found.relevance,
        "lower": found.lower,
        "upper": found.upper,
        "grade": np.searchsorted(chosen, rated, side="right"),
        "clicks": c,
        "impressions": impressions,
        "effective_impressions": e,
        "supported": counts["known"].to_numpy() / impressions,
    }
    table = pa.table({name: columns[name] for name in COLUMNS})
    table = table.sort_by([("query", "ascending"), ("relevance", "descending"), ("doc", "ascending")])
    return Judgments(table, found.prior, chosen, scale, level, documents - len(c))


def _from_counts(
    query: NDArray[Any], counts: pa.Table, propensities: Propensities, known: NDArray[np.float64] | None, level: float
) -> Shrunk:
    """Return what clicks and examination say."""
    c, e, squares, by_position, with_sd = (
        counts[name].to_numpy() for name in ("clicks", "exposure", "squares", "by_position", "with_sd")
    )
    told = propensities.info.get("clustered") or {}
    apart = float(told.get("query_variance") or 0.0)
    unsure = (with_sd / e) ** 2 + apart * by_position / e**2
    return shrink(query, c, e, squares=squares, variance=unsure, known=known, level=level)


def _from_corrected(query: NDArray[Any], counts: pa.Table, known: NDArray[np.float64] | None, level: float) -> Shrunk:
    """Return what corrected clicks say."""
    clicks, displays, exposure, shift, aa, ab, bb, with_sd = (
        counts[name].to_numpy().astype(np.float64)
        for name in ("corrected", "known", "exposure", "shift", "aa", "ab", "bb", "with_sd")
    )
    sums = Corrected(query, clicks, displays, exposure, shift, np.stack([aa, ab, bb]), with_sd / exposure)
    return shrink_corrected(sums, known=known, level=level)


def _corrected(log: ClickLog, model: AnyAffine) -> ir.Table:
    """Return, for every query and document, clicks, impressions and the sums that `shrink_corrected` takes.

    What the errors of slope and offset add to a click is summed as if those of all positions went together.
    """
    joined, _ = join_lines(log, model)
    role = {name: log.columns[name] for name in ("query", "doc", "clicks", "impressions")}
    lines = dict(zip(("a", "b", "sd", "known"), (joined[name] for name in JOINED), strict=True))
    rows = joined.select(**role, **lines)
    rows = rows.filter(rows.impressions > 0)
    a, b = rows.a, rows.b
    sums = {"exposure": a, "shift": b, "aa": a * a, "ab": a * b, "bb": b * b, "with_sd": rows.sd}
    return rows.group_by("query", "doc").agg(
        clicks=rows.clicks.sum().cast("int64"),
        impressions=rows.impressions.sum().cast("int64"),
        known=rows.known.ifelse(rows.impressions, 0).sum().cast("int64"),
        corrected=rows.known.ifelse(rows.clicks, 0).sum().cast("float64"),
        **{
            name: rows.known.ifelse(value * rows.impressions, 0.0).sum().cast("float64") for name, value in sums.items()
        },
    )


def _is_exact(model: AnyAffine) -> bool:
    """Return whether a model, or that of a level, has no error bars."""
    return any(own.covariance is None for _, own in model.parts)


def _placement(query: NDArray[Any], exposure: NDArray[Any], impressions: NDArray[Any]) -> NDArray[np.float64]:
    """Return how high rankers showed documents, log E / n, its square, and how often, of the most shown, [n, 3]."""
    most = np.zeros(int(query.max()) + 1)
    np.maximum.at(most, query, impressions)
    height = np.log(exposure / impressions)
    return np.stack([height, (height - height.mean()) ** 2, np.log(impressions / most[query])], axis=1)


def _checked(cutoffs: Sequence[float], scale: str, level: float) -> tuple[float, ...]:
    chosen = tuple(float(cutoff) for cutoff in cutoffs)
    if not chosen or not all(np.isfinite(chosen)) or chosen[0] <= 0 or any(np.diff(chosen) <= 0):
        raise InputError(f"cut-offs are {list(chosen)}: expected numbers above 0 that ascend, such as 0.5, 1, 2")
    if scale not in get_args(Scale):
        raise InputError(f"the scale of cut-offs is {scale!r}: expected {', '.join(get_args(Scale))}")
    if not 0 < level < 1:
        raise InputError(f"the level of an interval is {level}: expected a number between 0 and 1, such as 0.95")
    return chosen


def _warn(log: ClickLog, exact: bool) -> None:
    if exact:
        sentence = "the model has no error bars, so that intervals of relevance take its propensities as exact"
        warnings.warn(sentence, HarvestWarning, stacklevel=3)
    if log.only_clicked_pages:
        sentence = (
            "nearly every page of the log has a click: those without seem to be missing, so that relevance is too "
            "high, most where few users click; compare documents of one query alone"
        )
        warnings.warn(sentence, HarvestWarning, stacklevel=3)


def _counted(log: ClickLog, propensities: Propensities) -> ir.Table:
    """Return, for every query and document, clicks, impressions and the sums that `shrink` takes."""
    cells = count_cells(log, model_context(log, propensities))
    scored = score_cells(cells, propensities, spread=True)
    results = {"_p": scored.propensity, "_sd": scored.log_sd, "_known": scored.supported}
    joined = cells.join(results)
    role = {name: log.columns[name] for name in ("query", "doc", "clicks", "impressions")}
    rows = joined.select(**role, place=cells.values["position"], p=joined._p, sd=joined._sd, known=joined._known)
    rows = rows.filter(rows.impressions > 0)
    examined = rows.impressions * rows.p
    places = rows.group_by("query", "doc", "place").agg(
        clicks=rows.clicks.sum(),
        impressions=rows.impressions.sum(),
        exposure=examined.sum(),
        squares=(examined * rows.p).sum(),
        with_sd=(examined * rows.sd).sum(),
        known=rows.impressions.sum(where=rows.known).fill_null(0),
    )
    return places.group_by("query", "doc").agg(
        clicks=places.clicks.sum().cast("int64"),
        impressions=places.impressions.sum().cast("int64"),
        exposure=places.exposure.sum(),
        squares=places.squares.sum(),
        with_sd=places.with_sd.sum(),
        by_position=(places.exposure * places.exposure).sum(),
        known=places.known.sum().cast("int64"),
    )
