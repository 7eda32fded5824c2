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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clickharvest.errors import InputError
from clickharvest.model.propensities import Propensities
from clickharvest.scoring import cell_values, count_cells, join_cells, model_context, own_columns, score_cells
from clickharvest.words import count, spell_positions

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog

Clip = float | Literal["auto"] | None

COLUMNS = ("propensity", "ips_weight", "propensity_supported")
"""The columns that weighing adds to those of a log."""
POLICY = "policy_propensity"
"""The column that policy-aware weighing adds beside the propensity."""
KEPT_SHARE = 0.5
"""Share of the clicks that the effective sample size must reach where the clip is chosen."""


@dataclass(frozen=True)
class WeightReport:
    """What weighing did to a log.

    Attributes:
        rows: rows of the log.
        clicks: clicks in them.
        clip: least propensity that a weight is made of; None where nothing is clipped.
        clipped_clicks: clicks whose propensity is below it.
        effective_clicks: effective sample size (Σw)² / Σw² over the clicks: as many clicks of equal weight would
            tell as much.
        largest_weight: the largest weight of a row.
        scale: what the weights were divided by: their mean over the clicks where normalised, otherwise 1.
        unsupported_rows: rows at positions without an estimate, which borrowed that of another position.
        unsupported_clicks: clicks in those rows.
        unsupported_positions: those positions.
        unsupported_context_rows: rows whose position has an estimate, but whose context the data of the model do not
            speak of there (`model.support`): their number is what the curve makes of other contexts.
        unsupported_context_clicks: clicks in those rows.
        unsupported_contexts: why, and how many of those rows each.
        unsupported_places: what those positions stand for, in words, where they are numbers of places.
    """

    rows: int
    clicks: int
    clip: float | None
    clipped_clicks: int
    effective_clicks: float
    largest_weight: float
    scale: float
    unsupported_rows: int
    unsupported_clicks: int
    unsupported_positions: tuple[int, ...]
    unsupported_context_rows: int = 0
    unsupported_context_clicks: int = 0
    unsupported_contexts: Mapping[str, int] = field(default_factory=dict)
    unsupported_places: str = ""

    @property
    def clip_share(self) -> float:
        """Share of the clicks that were clipped."""
        return self.clipped_clicks / self.clicks if self.clicks else 0.0

    @property
    def effective_share(self) -> float:
        """Effective sample size as a share of the clicks."""
        return self.effective_clicks / self.clicks if self.clicks else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON holds it."""
        shares = {"clip_share": self.clip_share, "effective_share": self.effective_share}
        return asdict(self) | {"unsupported_positions": list(self.unsupported_positions)} | shares

    def __str__(self) -> str:
        clipped = "No weight is clipped."
        if self.clip is not None:
            clipped = (
                f"Clipped at propensity {self.clip:.4g}: {count(self.clipped_clicks, 'click')} ({self.clip_share:.1%})."
            )
        lines = [
            f"Weighed {count(self.clicks, 'click')} in {count(self.rows, 'row')}; "
            f"the largest weight is {self.largest_weight:.4g}.",
            f"They tell as much as {count(self.effective_clicks, 'click')} of equal weight "
            f"({self.effective_share:.1%}).",
            clipped,
        ]
        if self.unsupported_rows:
            where = f"position{'s' if len(self.unsupported_positions) > 1 else ''}"
            what = f"rows: {self.unsupported_rows:,}, clicks: {self.unsupported_clicks:,}"
            told = self.unsupported_places or f"{where} {spell_positions(self.unsupported_positions)}"
            other = (
                "supported place that is most like it" if self.unsupported_places else "last supported position above"
            )
            lines.append(f"No estimate at {told} ({what}): the one of the {other} is used instead.")
        if self.unsupported_context_rows:
            what = f"rows: {self.unsupported_context_rows:,}, clicks: {self.unsupported_context_clicks:,}"
            lines.append(f"Contexts that are not supported ({what}): the number is what the curve makes of others.")
            lines += [f"  {why}: {count(rows, 'row')}" for why, rows in self.unsupported_contexts.items()]
        return "\n".join(lines)


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

    Raises:
        InputError: context columns are missing or of another kind than in training, or names clash.

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
    context = model_context(log, propensities)
    _check_names(log)
    values = cell_values(log, context)
    cells = count_cells(log, values)
    position, clicks, rows = (cells[name].to_numpy() for name in ("position", "clicks", "rows"))
    contexts = {name: cells[f"context_{i}"] for i, name in enumerate(context)}
    scored = score_cells(log, propensities, position, contexts)
    p, own, why = scored.propensity, scored.own, scored.why
    # A cell counts once: its position comes first.
    doubted = own & (why != "")
    threshold = vanishing_clip(float(clicks.sum())) if clip == "auto" else clip
    weight = ips_weights(p, threshold)
    if not np.isfinite(weight).all():
        raise InputError(
            f"{np.count_nonzero(~np.isfinite(weight)):,} cells of context and position have a propensity of 0, so "
            "that weights are infinite: clip them, such as with clip=0.01 (--clip 0.01)"
        )
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
        unsupported_contexts={told: int(rows[own & (why == told)].sum()) for told in sorted(set(why[doubted]))},
    )
    results = dict(zip(COLUMNS, (p, weight / scale, own & ~doubted), strict=True))
    joined = join_cells(log, values, cells, results)
    table = joined.select(**own_columns(log), **{name: joined[name] for name in COLUMNS})
    return _by_policy(log, table, report, normalise) if policy_aware else Weights(table, report)


def weigh_to_parquet(
    log: ClickLog,
    propensities: Propensities,
    path: str | Path,
    *,
    clip: Clip = None,
    normalise: bool = False,
    policy_aware: bool = False,
) -> WeightReport:
    """Weigh a log straight into a Parquet file, however large, and return the report.

    Arguments are those of `weigh`; the file's metadata hold the report.
    """
    with log.engine.output(Path(path)) as partial:
        weights = weigh(log, propensities, clip=clip, normalise=normalise, policy_aware=policy_aware)
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


def _check_names(log: ClickLog) -> None:
    added = (*COLUMNS, POLICY)
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
