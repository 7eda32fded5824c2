"""Weights: the inverse propensity of every row of a log, as columns, computed inside the engine.

A click at position k in context x was seen with probability p_k(x), so it stands for 1 / p_k(x) clicks:

    ips_weight = 1 / max(p_k(x), clip)      (divided, if normalised, by its mean over the clicks)

Propensities are relative to the model's anchor, and so are clip and weights: a click at the anchor weighs 1. The
weight is that of *one click* and is given on every row. What a row contributes is its clicks times its weight; a row
without a click contributes nothing. To train a ranker, give the clicked documents their weights and all others none
(see `clickharvest.rank.boosting` for why a `sample_weight` is something else).

Propensities are those of cells, which `scoring` counts and joins back inside the engine: no row leaves it.

Where rankers of the log show different documents, weights are *policy-aware* on demand: with E_qd = Σ p_k(x) over the
pages of query q that showed document d, and n_q all its pages,

    policy_propensity = ρ_qd = E_qd / n_q      ips_weight = 1 / max(ρ_qd, clip)

What comes of a click, such as a purchase, needs the click first and may depend on the position once more: with s_k(x)
of a model of the outcome after the click (`clickharvest.logs.outcomes`), or s = 1 where the user says so,

    outcome_propensity = p_k(x) s_k(x)      outcome_weight = 1 / max(p_k(x) s_k(x), clip)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.harvesting.numbering import as_array
from clickharvest.model.cautions import outcome_of, require_examination
from clickharvest.model.propensities import Propensities
from clickharvest.scoring import (
    Scored,
    cell_contexts,
    cell_values,
    count_cells,
    join_cells,
    model_context,
    own_columns,
    score_cells,
)
from clickharvest.weight_report import OutcomeReport, WeightReport
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.outcomes import AfterClick

__all__ = [
    "OutcomeReport",
    "WeightReport",
    "Weights",
    "choose_clip",
    "effective_sample_size",
    "ips_weights",
    "vanishing_clip",
    "weigh",
    "weigh_to_parquet",
]

Clip = float | Literal["auto"] | None

COLUMNS = ("propensity", "ips_weight", "propensity_supported")
"""The columns that weighing adds to those of a log."""
OUTCOME_COLUMNS = ("outcome_propensity", "outcome_weight", "outcome_supported")
"""The columns that weighing adds for what came of clicks, where it is named."""
SAME: Literal["same"] = "same"
"""Says that what comes of a click does not depend on the position."""
POLICY = "policy_propensity"
"""The column that policy-aware weighing adds beside the propensity."""
KEPT_SHARE = 0.5
"""Share of the clicks that the effective sample size must reach where the clip is chosen."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A weighed log: an expression not yet run, and what it will hold.

    Attributes:
        table: all columns of the log under their own names (positions and clicks as numbers, though a CSV file holds
            text; the number of a row's place under a name of its own), then `propensity`, `ips_weight`,
            `propensity_supported`; one row per row of the log, in any order.
        report: effective sample size, what was clipped, what had no estimate.
    """

    table: ir.Table
    report: WeightReport


def weigh(
    log: ClickLog,
    propensities: Propensities,
    *,
    clip: Clip = None,
    normalise: bool = False,
    policy_aware: bool = False,
    outcome: str | None = None,
    after_click: Propensities | Literal["same"] | None = None,
) -> Weights:
    """Add propensities and inverse-propensity weights to the rows of a log.

    A position without an estimate, in a gap or beyond the model's range, gets the propensity of the last supported
    position above it (of the first supported one if none is above); `propensity_supported` is then false. It is false
    too where the position has an estimate that does not hold for the context: a value that training never had or that
    its own clicks do not link at that position, a number far outside. The propensity is then that of the curve, the
    shrunk guess: leave such rows out or keep them, they are told apart. A place without an estimate gets that of a
    middling one among those that share most columns with it.

    Args:
        log: the click log; its context holds the model's context columns.
        propensities: the model.
        clip: least propensity to divide by; `"auto"` takes 1 / √clicks, see `vanishing_clip`; None divides by any.
        normalise: divide the weights by their mean over the clicks, so that they sum to the number of clicks.
        policy_aware: make the weights of ρ, and add it as the column `policy_propensity`: right where rankers of the
            log show different documents (see `logs.pages`).
        outcome: column of what came of clicks, such as purchases: adds `outcome_propensity`, `outcome_weight` and
            `outcome_supported`, made like those of clicks.
        after_click: the model of the outcome after the click, or `"same"` where it does not depend on the position.

    Raises:
        InputError: context columns are missing or of another kind than in training, names clash, or models are of
            something else than what they are given for.

    Example:
        >>> from clickharvest.model.curves import make_curve
        >>> from clickharvest.logs.reading import read_log
        >>> import pyarrow as pa
        >>> shown = pa.table({"query": ["q"] * 3, "doc": ["a", "b", "c"], "rank": [1, 2, 3], "click": [1, 1, 0]})
        >>> model = Propensities(make_curve("constant", (1, 2), 1, 0), {"b": np.log([0.5])}, None, shown=(1, 2))
        >>> log = read_log(shown, position="rank")
        >>> weights = weigh(log, model)
        >>> log.engine.fetch(weights.table.order_by("rank"), task="Weighing")["ips_weight"].to_pylist()
        [1.0, 2.0, 2.0]
        >>> print(weights.report)
        Weighed 2 clicks in 3 rows; the largest weight is 2.
        They tell as much as 2 clicks of equal weight (90.0%).
        No weight is clipped.
        No estimate at position 3 (rows: 1, clicks: 0): the one of the last supported position above is used instead.
    """
    if clip is not None and clip != "auto" and not (isinstance(clip, int | float) and 0 < clip <= 1):
        raise InputError(f"clip is {clip!r}: expected a propensity above 0 and at most 1, such as 0.05, or 'auto'")
    require_examination(propensities)
    curve = _curve_after_click(outcome, after_click, policy_aware)
    after = None if outcome is None else _outcomes(log, outcome)
    models = [propensities] if curve is None else [propensities, curve]
    context = tuple(dict.fromkeys(name for model in models for name in model_context(log, model)))
    _check_names(log)
    values = cell_values(log, context)
    cells = count_cells(log, values, **({} if after is None else {"outcomes": after.log.columns["clicks"]}))
    position, clicks, rows = (as_array(cells[name]) for name in ("position", "clicks", "rows"))
    contexts = cell_contexts(cells, context)
    scored = score_cells(log, propensities, position, contexts)
    p, own = scored.propensity, scored.own
    # A cell counts once: its position comes first.
    doubted = own & (scored.doubt > 0)
    threshold = vanishing_clip(float(clicks.sum())) if clip == "auto" else clip
    weight = ips_weights(p, threshold)
    _require_finite(weight)
    scale = float(np.average(weight, weights=clicks)) if normalise and clicks.any() else 1.0
    report = WeightReport(
        rows=int(rows.sum()),
        clicks=int(clicks.sum()),
        clip=threshold,
        clipped_clicks=0 if threshold is None else int(clicks[p < threshold].sum()),
        effective_clicks=effective_sample_size(weight, clicks),
        largest_weight=float((weight / scale).max()),
        scale=scale,
        unsupported_rows=int(rows[~own].sum()),
        unsupported_clicks=int(clicks[~own].sum()),
        unsupported_positions=tuple(np.unique(position[~own]).tolist()),
        unsupported_context_rows=int(rows[doubted].sum()),
        unsupported_context_clicks=int(clicks[doubted].sum()),
        unsupported_places="" if log.places is None else log.places.spell(np.unique(position[~own]).tolist()),
        unsupported_contexts=_count_doubts(scored, rows),
    )
    results = dict(zip(COLUMNS, (p, weight / scale, scored.supported), strict=True))
    if after is not None:
        found = None if curve is None else score_cells(log, curve, position, contexts)
        number = as_array(cells["outcomes"])
        more, told = _outcome_weights(after, number, scored, found, clip, normalise)
        results, report = results | more, replace(report, outcome=told)
    joined = join_cells(log, values, cells, results)
    table = joined.select(**own_columns(log), **{name: joined[name] for name in results})
    return _by_policy(log, table, report, normalise) if policy_aware else Weights(table, report)


def weigh_to_parquet(
    log: ClickLog,
    propensities: Propensities,
    path: str | Path,
    *,
    clip: Clip = None,
    normalise: bool = False,
    policy_aware: bool = False,
    outcome: str | None = None,
    after_click: Propensities | Literal["same"] | None = None,
) -> WeightReport:
    """Weigh a log straight into a Parquet file, however large, and return the report.

    Arguments are those of `weigh`; the file's metadata hold the report.
    """
    with log.engine.output(Path(path)) as partial:
        weights = weigh(
            log, propensities, clip=clip, normalise=normalise, policy_aware=policy_aware, outcome=outcome,
            after_click=after_click,
        )  # fmt: skip
        metadata = {"what": "weights", "anchor": propensities.curve.anchor, **weights.report.to_dict()}
        table = weights.table if log.places is None else weights.table.drop(log.roles["position"])
        log.engine.write_parquet(table, partial, metadata=metadata, task="Weighing")
    return weights.report


def ips_weights(propensity: ArrayLike, clip: float | None = None) -> NDArray[np.float64]:
    """Return 1 / max(p, clip): p [n] → [n].

    Example:
        >>> ips_weights([1.0, 0.5, 0.01], clip=0.1)
        array([ 1.,  2., 10.])
    """
    with np.errstate(divide="ignore"):
        return 1 / np.maximum(np.asarray(propensity, dtype=np.float64), 0.0 if clip is None else clip)


def effective_sample_size(weight: ArrayLike, clicks: ArrayLike | None = None) -> float:
    """Return (Σ_i c_i w_i)² / Σ_i c_i w_i²: weights w [n] of which each counts c [n] times (once by default).

    Example:
        >>> effective_sample_size([1, 1, 1, 1]), effective_sample_size([1, 3], clicks=[2, 0])
        (4.0, 2.0)
    """
    w = np.asarray(weight, dtype=np.float64)
    c = np.ones_like(w) if clicks is None else np.asarray(clicks, dtype=np.float64)
    w = w / max(float(np.abs(w).max(initial=0.0)), 1.0)  # it is the same at any scale, and squares stay finite
    squares = float((c * w**2).sum())
    return float((c * w).sum()) ** 2 / squares if squares else 0.0


def vanishing_clip(clicks: float) -> float:
    """Return 1 / √clicks: a clip whose bias vanishes as clicks grow in number, and whose weights stay below √clicks.

    Ionides (2008) shows that truncating weights at √n loses nothing in the limit.

    Example:
        >>> vanishing_clip(10_000), vanishing_clip(0)
        (0.01, 1.0)
    """
    return float(1 / np.sqrt(max(clicks, 1.0)))


def choose_clip(propensity: ArrayLike, clicks: ArrayLike | None = None, *, share: float = KEPT_SHARE) -> float | None:
    """Return the least clip that keeps the effective sample size at `share` of the clicks, None if none is needed.

    With n_eff(τ) the effective sample size of the weights 1 / max(p, τ) over all N clicks,

        clip = min {τ among the propensities of the clicks : n_eff(τ) ≥ share · N}.

    n_eff grows with τ, up to N where all weights are equal, so that there always is one. It bounds the variance of a
    small log; its bias does not vanish as clicks grow in number, see `vanishing_clip`.

    Args:
        propensity: p, [n].
        clicks: how many clicks each stands for, [n]; one by default.
        share: effective share of the clicks to keep, from 0 to 1.

    Example:
        Seven clicks at propensity 1, two at .5 and one at .05: unclipped, they tell as much as 2.3 clicks.

        >>> choose_clip([1, 0.5, 0.05], clicks=[7, 2, 1])
        0.5
    """
    if not 0 <= share <= 1:
        raise InputError(f"the effective share to keep is {share}: expected a number from 0 to 1")
    p = np.asarray(propensity, dtype=np.float64)
    c = np.ones_like(p) if clicks is None else np.asarray(clicks, dtype=np.float64)
    clicked = c > 0
    if not clicked.any():
        return None
    tau, cell = np.unique(p[clicked], return_inverse=True)
    counts = np.bincount(cell, weights=c[clicked])
    clipped = np.cumsum(counts)
    with np.errstate(divide="ignore", invalid="ignore"):  # a propensity of 0 is never enough
        # In units of 1/τ a clipped click weighs 1 and any other τ/p; both sums run over the propensities above τ.
        above = [np.cumsum((counts * tau**-power)[::-1])[::-1] - counts * tau**-power for power in (1.0, 2.0)]
        sums, squares = (clipped + above[i] * tau ** (i + 1) for i in (0, 1))
        # Rounding must not turn away the last one, where all weights are equal.
        enough = sums**2 / squares >= share * clipped[-1] * (1 - 1e-9)
    first = int(np.argmax(enough))
    return None if first == 0 else float(tau[first])


def _curve_after_click(
    outcome: str | None, after_click: Propensities | str | None, policy_aware: bool
) -> Propensities | None:
    """Return the model of what comes of a click; None where there is none to be asked for."""
    if outcome is None:
        if after_click is not None:
            raise InputError("what comes of a click is given, but not its column: name it with --outcome COLUMN")
        return None
    if policy_aware:
        raise InputError("policy-aware weights are those of clicks: leave out --outcome or --policy-aware")
    if isinstance(after_click, Propensities):
        own = outcome_of(after_click)
        if own is None:
            raise InputError("the model after the click is one of examination: fit one with --outcome")
        if own.lower() != clean_text(outcome).lower():
            warnings.warn(
                f"--outcome {outcome}: the model after the click is of {own}; where that is not the same "
                "under another name, fit one of this outcome",
                HarvestWarning,
                stacklevel=4,
            )
        return after_click
    if after_click == SAME:
        return None
    raise InputError(
        f"--outcome {outcome} may depend on the position once more: give the model of fit --outcome as --after-click "
        f"MODEL, or say that it does not with --after-click {SAME}, where check --outcome sees no sign of it"
    )


def _outcomes(log: ClickLog, outcome: str) -> AfterClick:
    from clickharvest.logs.outcomes import after_click

    return after_click(log, outcome)


def _outcome_weights(
    after: AfterClick, outcomes: NDArray[np.int64], clicked: Scored, found: Scored | None, clip: Clip, normalise: bool
) -> tuple[dict[str, NDArray[Any]], OutcomeReport]:
    """Return the columns of outcomes, cell by cell, and what to tell of them."""
    p, supported = clicked.propensity, clicked.supported
    if found is not None:
        p, supported = p * found.propensity, supported & found.supported
    threshold = vanishing_clip(float(outcomes.sum())) if clip == "auto" else clip
    weight = ips_weights(p, threshold)
    _require_finite(weight)
    scale = float(np.average(weight, weights=outcomes)) if normalise and outcomes.any() else 1.0
    report = OutcomeReport(
        column=after.column,
        after_click=found is not None,
        outcomes=int(outcomes.sum()),
        left_out=after.without_click + after.beyond_clicks,
        clip=threshold,
        clipped=0 if threshold is None else int(outcomes[p < threshold].sum()),
        effective=effective_sample_size(weight, outcomes),
        largest_weight=float((weight / scale).max()),
        scale=scale,
        unsupported=int(outcomes[~supported].sum()),
    )
    return dict(zip(OUTCOME_COLUMNS, (p, weight / scale, supported), strict=True)), report


def _count_doubts(scored: Scored, rows: NDArray[np.int64]) -> dict[str, int]:
    """Return the rows of each doubt about the context of a cell, by its words."""
    found = {
        why: int(rows[scored.own & (scored.doubt == number)].sum()) for number, why in enumerate(scored.reasons, 1)
    }
    return {why: found[why] for why in sorted(found) if found[why]}


def _require_finite(weight: NDArray[np.float64]) -> None:
    if not np.isfinite(weight).all():
        raise InputError(
            f"{np.count_nonzero(~np.isfinite(weight)):,} cells of context and position have a propensity of 0, so "
            "that weights are infinite: clip them, such as with clip=0.01 (--clip 0.01)"
        )


def _check_names(log: ClickLog) -> None:
    added = (*COLUMNS, POLICY, *OUTCOME_COLUMNS)
    if clash := [name for name in log.source.columns if name.lower() in added]:
        raise InputError(
            f"the log has a column {clash[0]!r} already, which is one that weighing adds ({', '.join(added)}): "
            "rename it or leave it out"
        )


def _by_policy(log: ClickLog, table: ir.Table, report: WeightReport, normalise: bool) -> Weights:
    """Return a weighed log with ρ, and weights made of it."""
    import ibis

    from clickharvest.logs.pages import examined_share

    share = log.engine.materialise(examined_share(log, table, COLUMNS[0]), task="Counting pages")
    same = [table[log.roles["query"]] == share.q, table[log.roles["doc"]] == share.d]
    own = {name: table[name] for name in table.columns}
    rows = table.left_join(share, same, rname="{name}_of_share").select(**own, **{POLICY: share.rho})
    clip = report.clip or 0.0
    weight = 1.0 / ibis.greatest(rows[POLICY], clip)
    clicks = rows[log.roles["click" if "click" in log.roles else "clicks"]].cast("float64")
    clipped = (rows[POLICY] < clip).ifelse(clicks, 0.0)
    sums = rows.aggregate(
        sum=(clicks * weight).sum(), squares=(clicks * weight**2).sum(), largest=weight.max(), clipped=clipped.sum()
    )
    (found,) = log.engine.fetch(sums, task="Summing weights").to_pylist()
    scale = found["sum"] / report.clicks if normalise and report.clicks else 1.0
    told = replace(
        report,
        clipped_clicks=round(found["clipped"]),
        effective_clicks=found["sum"] ** 2 / found["squares"] if found["squares"] else 0.0,
        largest_weight=found["largest"] / scale,
        scale=scale,
    )
    return Weights(rows.mutate(ips_weight=weight / scale), told)
