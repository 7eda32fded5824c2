"""Weights: the inverse propensity of every row of a log, as columns, computed inside the engine.

A click at position k in context x was seen with probability p_k(x), so it stands for 1 / p_k(x) clicks:

    ips_weight = 1 / max(p_k(x), clip)      (divided, if normalised, by its mean over the clicks)

Propensities are relative to the model's anchor, and so are clip and weights: a click at the anchor weighs 1. The
weight is that of *one click* and is given on every row. What a row contributes is its clicks times its weight; a row
without a click contributes nothing. To train a ranker, give the clicked documents their weights and all others none
(see `clickharvest.rank.boosting` for why a `sample_weight` is something else).

Propensities are those of cells, which `scoring` counts and joins back inside the engine: no row leaves it. Numbers of a
straight curve are followed there from row to row (`kinds`).

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
from numpy.typing import NDArray

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.model.budget import CANNOT_TELL, STATES
from clickharvest.model.cautions import outcome_of, require_examination
from clickharvest.model.propensities import Propensities
from clickharvest.positions.places import name_place, name_places
from clickharvest.weights.clipping import WeightSums, inverse, ips_weights, vanishing_clip
from clickharvest.weights.reports import OutcomeReport, WeightReport
from clickharvest.weights.scoring import Scored, count_cells, model_context, own_columns, score_cells
from clickharvest.weights.scoring import Trust as Trust
from clickharvest.words import clean_text

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from clickharvest.logs.click_log import ClickLog
    from clickharvest.logs.outcomes import AfterClick

Clip = float | Literal["auto"] | None

COLUMNS = ("propensity", "ips_weight", "propensity_state")
"""The columns that weighing adds to those of a log."""
OUTCOME_COLUMNS = ("outcome_propensity", "outcome_weight", "outcome_state")
"""The columns that weighing adds for what came of clicks, where it is named."""
SAME: Literal["same"] = "same"
"""Says that what comes of a click does not depend on the position."""
POLICY = "policy_propensity"
"""The column that policy-aware weighing adds beside the propensity."""


@dataclass(frozen=True, eq=False)
class Weights:
    """A weighed log: an expression not yet run, and what it will hold.

    Attributes:
        table: all columns of the log under their own names (positions and clicks as numbers, though a CSV file holds
            text; the number of a row's place under a name of its own), then `propensity`, `ips_weight`,
            `propensity_state`; one row per row of the log, in any order.
        report: effective sample size, what was clipped, what cannot be told.
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
    trust: Trust = "checked",
) -> Weights:
    """Add propensities and inverse-propensity weights to the rows of a log.

    `propensity_state` says whether the estimate of a row is `usable`, `with care` or `cannot tell`, as the model's
    budget has it (`model.budget`). Where it is `cannot tell`, or there is none, the row gets the propensity of the last
    position above that can be told in its context, and of the first one below if none is; of places, that of a middling
    one among those that can be told and share most columns with it. `trust="all"` uses every estimate there is.

    Args:
        log: the click log; its context holds the model's context columns.
        propensities: the model.
        clip: least propensity to divide by; `"auto"` takes 1 / √clicks, see `vanishing_clip`; None divides by any.
        normalise: divide the weights by their mean over the clicks, so that they sum to the number of clicks.
        policy_aware: make the weights of ρ, and add it as the column `policy_propensity`: right where rankers of the
            log show different documents.
        outcome: column of what came of clicks, such as purchases: adds `outcome_propensity`, `outcome_weight` and
            `outcome_state`, made like those of clicks.
        after_click: the model of the outcome after the click, or `"same"` where it does not depend on the position.
        trust: `"checked"`, or `"all"` to use estimates whose state is `cannot tell`, too.

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
        Effective sample size: 2 of 2 clicks (90.0%).
        No weight is clipped.
        Cannot tell at position 3: 0 clicks there get the weight of position 2 (--trust all uses the estimates).
    """
    from clickharvest.logs.click_log import require_log
    from clickharvest.logs.outcomes import after_click as outcomes_of

    if clip is not None and clip != "auto" and not (isinstance(clip, int | float) and 0 < clip <= 1):
        raise InputError(f"clip is {clip!r}: expected a propensity above 0 and at most 1, such as 0.05, or 'auto'")
    if hasattr(propensities, "propensities_"):
        raise InputError(f"a {type(propensities).__name__} is an estimator: give its propensities_")
    if isinstance(propensities, str | Path):
        raise InputError(f"{str(propensities)!r} is a path, no model: load it with load_propensities first")
    require_log(log)
    require_examination(propensities)
    curve = _curve_after_click(outcome, after_click, policy_aware)
    after = None if outcome is None else outcomes_of(log, outcome)
    models = [propensities] if curve is None else [propensities, curve]
    context = tuple(dict.fromkeys(name for model in models for name in model_context(log, model)))
    _check_names(log)
    if after is None:
        cells = count_cells(log, context, propensities)
    else:  # two models need not tell the same values apart
        cells = count_cells(log, context, outcomes=after.log.columns["clicks"])
    position, clicks, rows = (cells.counts(name) for name in ("position", "clicks", "rows"))
    scored = score_cells(cells, propensities, trust=trust)
    least = vanishing_clip(float(clicks.sum())) if clip == "auto" else clip
    if cells.numbers:
        joined, p = cells.join_lines(scored, {COLUMNS[2]: scored.state})
        sums = WeightSums.of_rows(log.engine, joined.select(propensity=p, clicks=log.columns["clicks"]), least)
    else:
        joined, p = None, None
        sums = WeightSums.of_cells(scored.propensity, clicks, least)
    scale = sums.mean if normalise else 1.0
    report = WeightReport(
        rows=int(rows.sum()),
        clicks=int(clicks.sum()),
        clip=least,
        clipped_clicks=sums.clipped,
        effective_clicks=sums.effective,
        largest_weight=sums.largest / scale,
        scale=scale,
        trust=trust,
        states={name: int(clicks[scored.state == name].sum()) for name in STATES},
        **_substituted(log, propensities, scored, position, rows, clicks),
    )
    if joined is not None:
        weighed = joined.select(**own_columns(log), propensity=p, propensity_state=joined[COLUMNS[2]])
        table = weighed.mutate(ips_weight=inverse(weighed.propensity, least, scale))
        table = table.select(*weighed.columns[:-1], "ips_weight", COLUMNS[2])
    else:
        weight = ips_weights(scored.propensity, least) / scale
        results = dict(zip(COLUMNS, (scored.propensity, weight, scored.state), strict=True))
        if after is not None:
            second = None if curve is None else score_cells(cells, curve, trust=trust)
            columns, of_outcome = _outcome_weights(after, cells.counts("outcomes"), scored, second, clip, normalise)
            results, report = results | columns, replace(report, outcome=of_outcome)
        joined = cells.join(results)
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
    trust: Trust = "checked",
) -> WeightReport:
    """Weigh a log straight into a Parquet file, however large, and return the report.

    Arguments are those of `weigh`; the file's metadata hold the report.
    """
    from clickharvest.logs.click_log import OURS

    with log.engine.output(Path(path)) as partial:
        weights = weigh(
            log, propensities, clip=clip, normalise=normalise, policy_aware=policy_aware, outcome=outcome,
            after_click=after_click, trust=trust,
        )  # fmt: skip
        metadata = {"what": "weights", "anchor": propensities.curve.anchor, **weights.report.to_dict()}
        table = weights.table.drop(*(name for name in weights.table.columns if name.startswith(OURS)))
        log.engine.write_parquet(table, partial, metadata=metadata, task="Weighing")
    return weights.report


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
        fitted = outcome_of(after_click)
        if fitted is None:
            raise InputError("the model after the click is one of examination: fit one with --outcome")
        if fitted.lower() != clean_text(outcome).lower():
            warnings.warn(
                f"--outcome {outcome}: the model after the click is of {fitted}; where that is not the same "
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


def _outcome_weights(
    after: AfterClick, outcomes: NDArray[np.int64], clicked: Scored, second: Scored | None, clip: Clip, normalise: bool
) -> tuple[dict[str, NDArray[Any]], OutcomeReport]:
    """Return the columns of outcomes, cell by cell, and their report."""
    p, codes = clicked.propensity, clicked.codes
    if second is not None:
        p, codes = p * second.propensity, np.maximum(codes, second.codes)
    state = np.array(STATES)[codes]
    least = vanishing_clip(float(outcomes.sum())) if clip == "auto" else clip
    sums = WeightSums.of_cells(p, outcomes, least)
    scale = sums.mean if normalise else 1.0
    report = OutcomeReport(
        column=after.column,
        after_click=second is not None,
        outcomes=int(outcomes.sum()),
        left_out=after.without_click + after.beyond_clicks,
        clip=least,
        clipped=sums.clipped,
        effective=sums.effective,
        largest_weight=sums.largest / scale,
        scale=scale,
        untold=int(outcomes[state == CANNOT_TELL].sum()),
    )
    return dict(zip(OUTCOME_COLUMNS, (p, ips_weights(p, least) / scale, state), strict=True)), report


def _substituted(
    log: ClickLog,
    propensities: Propensities,
    scored: Scored,
    position: NDArray[np.int64],
    rows: NDArray[np.int64],
    clicks: NDArray[np.int64],
) -> dict[str, Any]:
    """Return the fields of a report on rows that have the propensity of another position."""
    where = np.unique(position[scored.clipped]).tolist()
    in_some = bool(set(where) & set(position[~scored.clipped].tolist()))
    lenders = {propensities.curve.positions[i] for i in np.unique(scored.column[scored.clipped]).tolist()}
    return {
        "untold_rows": int(rows[scored.clipped].sum()),
        "untold_clicks": int(clicks[scored.clipped].sum()),
        "untold_positions": tuple(where),
        "untold_where": name_places(where, log.places) + " in some contexts" * in_some if where else "",
        "are_places": log.places is not None,
        "lender": name_place(lenders.pop(), propensities.places) if len(lenders) == 1 else "",
    }


def _check_names(log: ClickLog) -> None:
    added = (*COLUMNS, POLICY, *OUTCOME_COLUMNS)
    if clash := [name for name in log.source.columns if name.lower() in added]:
        raise InputError(
            f"the log has a column {clash[0]!r} already, which is one that weighing adds ({', '.join(added)}): "
            "rename it or leave it out"
        )


def _by_policy(log: ClickLog, table: ir.Table, report: WeightReport, normalise: bool) -> Weights:
    """Return a weighed log with ρ, and weights made of it."""
    share = log.engine.materialise(_examined_share(log, table), task="Counting pages")
    same = [table[log.roles["query"]] == share.q, table[log.roles["doc"]] == share.d]
    own = {name: table[name] for name in table.columns}
    rows = table.left_join(share, same, rname="{name}_of_share").select(**own, **{POLICY: share.rho})
    clicks = rows[log.roles["click" if "click" in log.roles else "clicks"]]
    sums = WeightSums.of_rows(log.engine, rows.select(propensity=rows[POLICY], clicks=clicks), report.clip)
    scale = sums.mean if normalise else 1.0
    changed = replace(
        report,
        clipped_clicks=sums.clipped,
        effective_clicks=sums.effective,
        largest_weight=sums.largest / scale,
        scale=scale,
    )
    return Weights(rows.mutate(ips_weight=inverse(rows[POLICY], report.clip, scale)), changed)


def _examined_share(log: ClickLog, table: ir.Table) -> ir.Table:
    """Return ρ_qd = E_qd / n_q of every query `q` and document `d`, `rho`, not yet run.

    E is the sum of propensities over the rows that show a document, each as often as it was shown. n is the number of
    pages of the query: counted where the log has a page column, else every ranker's most shown position.
    """
    import ibis

    shown = table[log.roles["impressions"]].cast("float64") if "impressions" in log.roles else ibis.literal(1.0)
    arm = table[log.roles["ranker"]] if log.has("ranker") else ibis.literal("")
    page = {"page": table[log.roles["page"]]} if log.has("page") else {}
    roles = {name: table[log.roles[role]] for name, role in (("q", "query"), ("d", "doc"), ("k", "position"))}
    rows = table.select(**roles, arm=arm, n=shown, p=table[COLUMNS[0]], **page)
    exposed = rows.group_by("q", "d").agg(exposure=(rows.p * rows.n).sum())
    if page:
        pages = rows.group_by("q").agg(pages=rows.page.nunique().cast("float64"))
    else:
        places = rows.group_by("q", "arm", "k").agg(n=rows.n.sum())
        arms = places.group_by("q", "arm").agg(n=places.n.max())
        pages = arms.group_by("q").agg(pages=arms.n.sum())
    both = exposed.join(pages, "q")
    # A counted row that was never shown has no page, and no share of none.
    return both.select("q", "d", rho=both.exposure / both.pages.nullif(0.0))
