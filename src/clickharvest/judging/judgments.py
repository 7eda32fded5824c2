"""Judgments: how relevant every document is to every query, from clicks with examination divided out.

The engine counts, for every query and document, clicks C and E = Σ p_k(x) over its impressions, so that C / E is the
rate of clicks on it at the anchor; `shrinkage` makes a posterior of that. Click-through (C over impressions) and clicks
over expected clicks (COEC) mix relevance with the position: the first says that what stood low is bad, the second
divides by how often *other* documents were clicked there, and so calls the documents average that a good ranker puts on
top.

Grades compare the documents of a query. A document has a grade if E is at least `LEAST_EXAMINED` and the posterior
interval of level `SURE` holds no more than this grade and the one beside it.

The variance of log E is (Σ_k w_k sd_k)² + σ² Σ_k w_k², with w_k the share of E at position k, sd_k the model's standard
errors, taken to be perfectly correlated, and σ² the variance between queries (`query_variance`), if it is known.

Affine clicks (`click_models.affine`) have E[C] = E c + B, with E = Σ a_k and B = Σ b_k over the displays that the model
can correct, and c the rate of clicks at the anchor. All results get at least the model's `floor` f of c, so that
C − B − f E are the clicks by relevance r = c − f, of variance Σ p (1 − p) with p = a_k c + b_k, plus that of B. The
table has f + r and its interval; grades are of r. Documents shown only where clicks cannot be corrected are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from clickharvest.click_models.affine import JOINED, join_lines
from clickharvest.errors import HarvestWarning, InputError
from clickharvest.judging.shrinkage import Shrunk, shrink
from clickharvest.logs.engines import steady
from clickharvest.model.propensities import Propensities
from clickharvest.weights.scoring import Trust, count_cells, model_context, score_cells
from clickharvest.words import count

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog

Array = NDArray[np.float64]
Scale = Literal["query", "corpus", "rate"]
"""Unit of the cut-offs of grades: the mean relevance of the query's documents, that of all documents, or 1."""

CUTOFFS = (0.5, 1.0, 2.0)
"""Least relevance of the grades 1, 2 and 3, in multiples of the mean: half of it, the mean, twice the mean."""
SURE = 0.8
"""Posterior probability that a grade is right or off by one; fewer documents have a grade if this is larger."""
LEAST_EXAMINED = 1.0
"""Least effective impressions of a graded document; fewer documents have a grade if this is larger."""
LEAST_RATE = 1e-3
"""Least click probability of a display in the variance of corrected clicks."""


@dataclass(frozen=True, eq=False)
class Judgments:
    """The relevance of every query and document that a log has shown.

    Attributes:
        table: Arrow table of `query`, `doc`; `relevance`, the rate of clicks at the anchor, and its interval `lower`,
            `upper`; `grade` from 0 to 3, null where the evidence is too weak; `clicks`, `impressions`, and
            `effective_impressions` E; `supported`, the share of the impressions whose propensity the model can tell.
            Sorted by query, then by descending relevance.
        mean: mean relevance.
        cutoffs: least relevance of the grades 1, 2 and 3, in units of `scale`.
        scale: what these are multiples of.
        level: level of the intervals.
        hardly_examined: documents without a grade because they have too few effective impressions.
        wide: documents without a grade because their interval holds more than two grades.
        left_out: documents of affine clicks without a judgment: the model has no estimate where they were shown.
        use: a phrase for how impressions without a propensity of their own were used.
    """

    table: pa.Table
    mean: float
    cutoffs: tuple[float, ...]
    scale: Scale
    level: float
    hardly_examined: int
    wide: int
    left_out: int
    use: str

    @property
    def grades(self) -> tuple[int, ...]:
        """Number of documents of the grades 0, 1, …"""
        counts = np.bincount(self.table["grade"].drop_null().to_numpy(), minlength=len(self.cutoffs) + 1)
        return tuple(int(n) for n in counts)

    @property
    def supported(self) -> float:
        """Share of all impressions whose propensity the model can tell."""
        impressions = self.table["impressions"].to_numpy()
        return float(np.average(self.table["supported"].to_numpy(), weights=impressions))

    def to_dict(self) -> dict[str, Any]:
        """Return counts and settings, without the table, as JSON holds them."""
        sums = ("clicks", "impressions", "effective_impressions")
        return {
            "judgments": self.table.num_rows,
            "queries": len(self.table["query"].unique()),
            **{name: np.sum(self.table[name].to_numpy()).item() for name in sums},
            "graded": sum(self.grades),
            "grades": list(self.grades),
            "hardly_examined": self.hardly_examined,
            "wide": self.wide,
            "left_out": self.left_out,
            "supported": self.supported,
            "mean": self.mean,
            "cutoffs": list(self.cutoffs),
            "scale": self.scale,
            "level": self.level,
        }

    def __str__(self) -> str:
        sums = self.to_dict()
        of = {"query": " × the query's mean", "corpus": " × the mean", "rate": ""}[self.scale]
        graded = ", ".join(f"{n:,} of grade {grade}" for grade, n in enumerate(self.grades))
        reasons = [
            f"{self.hardly_examined:,} with less than one effective impression" * bool(self.hardly_examined),
            f"{self.wide:,} whose clicks leave more than two grades open" * bool(self.wide),
        ]
        lines = [
            f"Judged {count(sums['judgments'], 'document')} of {count(sums['queries'], 'query', 'queries')} by "
            f"{count(sums['clicks'], 'click')} on {count(sums['impressions'], 'impression')} "
            f"({sums['effective_impressions']:,.0f} effective).",
            f"Graded: {sums['graded']:,}, from {', '.join(f'{cutoff:g}' for cutoff in self.cutoffs)}{of} on: {graded}.",
        ]
        if any(reasons):
            lines.append(f"Not graded: {', '.join(filter(None, reasons))}.")
        if self.supported < 1:
            lines.append(
                f"{100 * (1 - self.supported):.2g} % of the impressions have a propensity that the model cannot tell; "
                f"{self.use}."
            )
        if self.left_out:
            lines.append(f"Left out: {count(self.left_out, 'document')}, shown only where the model has no estimate.")
        return "\n".join(lines)


def judge(
    log: ClickLog,
    propensities: Propensities | AnyAffine,
    *,
    level: float = 0.95,
    cutoffs: Sequence[float] = CUTOFFS,
    scale: Scale = "query",
    keep_unsure: bool = False,
    trust: Trust = "checked",
) -> Judgments:
    """Judge every query and document of a log by its clicks.

    Args:
        log: the click log; its context holds the model's context columns.
        propensities: the model, of examination or affine.
        level: level of the intervals.
        cutoffs: least relevance of the grades 1, 2, …, ascending.
        scale: what they are multiples of: `"query"`, the mean relevance of the documents of the query; `"corpus"`, that
            of all documents; `"rate"`, nothing: they are rates of clicks.
        keep_unsure: whether documents with weak evidence have the grade of their relevance all the same.
        trust: `"checked"`, or `"all"` to use propensities that the model cannot tell, too; see `weigh_clicks`.

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
        >>> found.grades
        (0, 1, 1, 0)
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from clickharvest.logs.click_log import require_log

    require_log(log)
    chosen = _checked(cutoffs, scale, level)
    if isinstance(propensities, Propensities):
        floor, exact, counted = 0.0, propensities.draws is None, _counted(log, propensities, trust)
    else:
        floor, exact, counted = propensities.floor() or 0.0, _is_exact(propensities), _corrected(log, propensities)
    _warn(log, exact)
    # Engines add and return groups in any order: rounding and sorting make runs reproducible.
    counts = log.engine.fetch(counted, task="Counting clicks").sort_by([("query", "ascending"), ("doc", "ascending")])
    counts = steady(counts, [field.name for field in counts.schema if pa.types.is_floating(field.type)])
    if not counts.num_rows:
        raise InputError("the log has no impressions: there is nothing to judge")
    documents = counts.num_rows
    if not isinstance(propensities, Propensities):
        counts = counts.filter(pc.greater(counts["known"], 0))
    if not counts.num_rows:
        raise InputError(
            "every document was shown only where the model has no estimate: judge with a model of this log's positions "
            "and contexts"
        )
    _, query = np.unique(counts["query"].to_numpy(zero_copy_only=False), return_inverse=True)
    exposure, impressions = counts["exposure"].to_numpy(), counts["impressions"].to_numpy()
    if isinstance(propensities, Propensities):
        posterior = _from_counts(query, counts, propensities)
    else:
        posterior = _from_corrected(query, counts, floor)
    unit = {
        "query": posterior.mean,
        "corpus": np.full_like(posterior.mean, posterior.overall),
        "rate": np.ones_like(posterior.mean),
    }
    shift = floor if scale == "rate" else 0.0

    def graded(relevance: Array) -> NDArray[np.int64]:
        return np.searchsorted(chosen, (relevance + shift) / unit[scale], side="right")

    least, largest = (graded(end) for end in posterior.interval(SURE))
    hardly = exposure < LEAST_EXAMINED
    wide = (largest - least > 1) & ~hardly
    if keep_unsure:
        hardly, wide = np.zeros_like(hardly), np.zeros_like(wide)
    lower, upper = posterior.interval(level)
    columns = {
        "query": counts["query"],
        "doc": counts["doc"],
        "relevance": floor + posterior.relevance,
        "lower": floor + lower,
        "upper": floor + upper,
        "grade": pa.array(graded(posterior.relevance), mask=hardly | wide),
        "clicks": counts["clicks"],
        "impressions": impressions,
        "effective_impressions": exposure,
        "supported": counts["known"].to_numpy() / impressions,
    }
    order = [("query", "ascending"), ("relevance", "descending"), ("doc", "ascending")]
    if not isinstance(propensities, Propensities):
        use = "they are left out"
    elif trust == "checked":
        use = "they have that of the last position above that it can tell"
    else:
        use = "its estimates are used all the same"
    return Judgments(
        pa.table(columns).sort_by(order),
        floor + posterior.overall,
        chosen,
        scale,
        level,
        int(hardly.sum()),
        int(wide.sum()),
        documents - len(exposure),
        use,
    )


def _from_counts(query: NDArray[Any], counts: pa.Table, propensities: Propensities) -> Shrunk:
    """Return the posterior of relevance from clicks and examination."""
    c, e, by_position, with_sd = (counts[name].to_numpy() for name in ("clicks", "exposure", "by_position", "with_sd"))
    query_variance = float((propensities.fit_info.clustered or {}).get("query_variance") or 0.0)
    log_variance = (with_sd / e) ** 2 + query_variance * by_position / e**2
    return shrink(query, c, e, dispersion=lambda rate: 1 + log_variance * e * rate)


def _from_corrected(query: NDArray[Any], counts: pa.Table, floor: float) -> Shrunk:
    """Return the posterior of relevance above the floor from corrected clicks."""
    clicks, displays, e, shift, aa, ab, bb, with_sd = (
        counts[name].to_numpy().astype(np.float64)
        for name in ("corrected", "known", "exposure", "shift", "aa", "ab", "bb", "with_sd")
    )

    def variance(rate: Array) -> Array:
        mean = e * rate + shift
        of_clicks = np.maximum(mean - (aa * rate**2 + 2 * ab * rate + bb), LEAST_RATE * displays)
        return np.asarray(of_clicks + with_sd**2, np.float64)

    def dispersion(rate: Array) -> Array:
        # Where clicks by relevance are few among the others, the others make the rate uncertain.
        detectable = np.maximum(rate, np.sqrt(variance(np.full_like(rate, floor))) / e)
        return np.asarray(variance(detectable + floor) / (e * detectable), np.float64)

    by_relevance = np.where(clicks > 0, np.maximum(clicks - shift - floor * e, 0.0), 0.0)
    return shrink(query, by_relevance, e, dispersion=dispersion, most=1 - floor)


def _corrected(log: ClickLog, model: AnyAffine) -> ir.Table:
    """Return clicks, impressions and the sums that `_from_corrected` takes, by query and document.

    Errors of slope and offset are summed as if those of all positions were perfectly correlated.
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
    return any(part.covariance is None for _, part in model.parts)


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


def _counted(log: ClickLog, propensities: Propensities, trust: Trust) -> ir.Table:
    """Return clicks, impressions and the sums that `_from_counts` takes, by query and document."""
    cells = count_cells(log, model_context(log, propensities))
    scored = score_cells(cells, propensities, trust=trust)
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
        with_sd=(examined * rows.sd).sum(),
        known=rows.impressions.sum(where=rows.known).fill_null(0),
    )
    return places.group_by("query", "doc").agg(
        clicks=places.clicks.sum().cast("int64"),
        impressions=places.impressions.sum().cast("int64"),
        exposure=places.exposure.sum(),
        with_sd=places.with_sd.sum(),
        by_position=(places.exposure * places.exposure).sum(),
        known=places.known.sum().cast("int64"),
    )
