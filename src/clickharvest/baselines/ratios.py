"""Ratios of click rates: naive by position, or between two positions on the units that were shown at both.

ĉ_{k,k'}(k) = Σ_{u ∈ S_{k,k'}} C_{u,k} / e_{u,k} sums over the units exposed at k and at k'. Its expectation is
p_k Σ_u r_u (times the unit's displays, for design exposures), so that ĉ_{k,k'}(k) / ĉ_{k,k'}(k') estimates p_k / p_k'
whatever the relevances are. C / e is the click rate of a unit at k with realised exposures, and its clicks divided by
the probability of being shown there with design exposures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clickharvest.baselines.cells import Array, Cells, constant_propensities
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.harvesting.interventions import Interventions, warn_of_clicked_pages
from clickharvest.model.propensities import Propensities
from clickharvest.words import spell_positions

if TYPE_CHECKING:
    from clickharvest.logs.click_log import ClickLog


def click_rates(log: ClickLog | Cells, *, anchor: int = 1, max_position: int | None = None) -> Propensities:
    """Return click-through rates by position, relative to the anchor's: p_k = CTR_k / CTR_anchor.

    CTR_k = Σ clicks at k / Σ impressions at k over the whole log. It mixes examination with how good the documents
    at k were: if rankers put good documents at the top, p_k comes out too small.

    Args:
        log: the click log, counted inside its engine, or its cells where no engine is at hand.
        anchor: the position others are relative to.
        max_position: leave out what was shown lower; cells are taken as they are.

    Raises:
        NotIdentifiedError: the anchor, or every other position, is without clicks.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> counted = {"query": ["q"] * 3, "doc": ["a", "b", "c"], "position": [1, 2, 3]}
        >>> log = read_log(pa.table(counted | {"clicks": [50, 20, 0], "impressions": [100, 80, 80]}))
        >>> result = click_rates(log)
        >>> result.curve.positions, np.exp(result.params["b"]).tolist()
        ((1, 2), [0.5])
    """
    if isinstance(log, Cells):
        size = max(log.shown) + 1
        sums = {name: np.bincount(log.position, getattr(log, name), size) for name in ("clicks", "impressions")}
        counted = {name: values[list(log.shown)].tolist() for name, values in sums.items()}
        counted["position"] = list(log.shown)
    else:
        counted = _count_positions(log, max_position)
    columns = (counted[name] for name in ("position", "clicks", "impressions"))
    rates = {k: clicks / shown for k, clicks, shown in zip(*columns, strict=True) if clicks}
    ratios = {k: rate / rates[anchor] for k, rate in rates.items()} if anchor in rates else {}
    return _result(ratios, anchor, counted["position"], {"estimator": "click_rates", "clicks": sum(counted["clicks"])})


def swap_ratio(source: Interventions | ClickLog, *, anchor: int = 1) -> Propensities:
    """Return the ratios of a swap experiment (Joachims, Swaminathan and Schnabel, 2017).

    p_k / p_1 = [Σ_{u ∈ S_{1,k}} C_{u,k} / e_{u,k}] / [Σ_{u ∈ S_{1,k}} C_{u,1} / e_{u,1}], 1 being the anchor.

    - **A log** with an `original` column is pooled by it: u is the group of impressions that the ranker had put at
      1, or at k, before the swap, and e_{u,j} the observed share of its impressions at {1, k} that stood at j. The
      swap probabilities need not be known, and no query need be repeated; the rank that is exchanged with the top
      must not depend on the query. Where 1 and k are exchanged half of the time, this is the plain ratio of the
      click rates at k and 1.
    - **Interventions** harvested with a `Swap` design: u is a unit, e_{u,j} its probability to stand at j by the
      design. From any other exposures the formula is that of `pivot_one`: with `Rankings`, swaps that different
      rankers make; with realised exposures, each unit's click rate at k over that at 1, units counting alike.

    Raises:
        InputError: the log has no `original` column.
        NotIdentifiedError: no swap links a position to the anchor.

    Example:
        Documents from rank 1 got 40 clicks on 80 impressions there, 10 on 40 after a swap to rank 2.

        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> counted = {"query": ["q", "q"], "doc": ["a", "a"], "original": [1, 1], "position": [1, 2]}
        >>> log = read_log(pa.table(counted | {"clicks": [40, 10], "impressions": [80, 40]}))
        >>> np.exp(swap_ratio(log).params["b"]).tolist()
        [0.5]
    """
    if isinstance(source, Interventions):
        return _pivoted(source, anchor, "swap_ratio")
    if not source.has("original"):
        raise InputError(
            "a swap experiment needs the position before the swap: name the log's column with --original, "
            "or harvest the log with a Swap design"
        )
    t = source.table
    counted = _fetch_counts(source, t.group_by(original=t.original.cast("int64"), position=t.position.cast("int64")))
    clicks, shown = (
        dict(zip(zip(counted["original"], counted["position"], strict=True), counted[name], strict=True))
        for name in ("clicks", "impressions")
    )
    ratios = {anchor: 1.0}
    for k in set(counted["position"]) - {anchor}:
        both = [u for u in (anchor, k) if (u, anchor) in shown and (u, k) in shown]
        weight = {u: shown[u, anchor] + shown[u, k] for u in both}
        at_k, at_anchor = (sum(weight[u] * clicks[u, j] / shown[u, j] for u in both) for j in (k, anchor))
        if at_k > 0 and at_anchor > 0:
            ratios[k] = at_k / at_anchor
    return _result(ratios, anchor, counted["position"], {"estimator": "swap_ratio", "clicks": sum(clicks.values())})


def pivot_one(interventions: Interventions, *, anchor: int = 1) -> Propensities:
    """Return PivotOne (Agarwal et al., 2019): p_k / p_1 = ĉ_{1,k}(k) / ĉ_{1,k}(1), 1 being the anchor.

    Args:
        interventions: the harvest, with realised or design exposures.
        anchor: the pivot.

    Raises:
        InputError: design exposures differ by context inside a unit.
        NotIdentifiedError: no unit was clicked at the anchor and exposed elsewhere.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0]), query=np.array(["q", "q"]), position=np.array([1, 2]),
        ...     exposure=np.array([8.0, 4.0]), clicks=np.array([4, 1]), impressions=np.array([8, 4]))
        >>> np.exp(pivot_one(interventions).params["b"]).tolist()
        [0.5]
    """
    return _pivoted(interventions, anchor, "pivot_one")


def adjacent_chain(interventions: Interventions, *, anchor: int = 1) -> Propensities:
    """Return AdjacentChain (Agarwal et al., 2019): p_k / p_1 = Π_{j<k} ĉ_{j,j+1}(j + 1) / ĉ_{j,j+1}(j).

    Below the anchor, ratios are multiplied from the anchor down; above it, divided from the anchor up. The chain ends
    where two neighbours j, j + 1 have no common unit, or none that was clicked at each: positions beyond have no
    estimate.

    Args:
        interventions: the harvest, with realised or design exposures.
        anchor: where the chain starts.

    Raises:
        InputError: design exposures differ by context inside a unit.
        NotIdentifiedError: the chain ends at the anchor.

    Example:
        >>> interventions = Interventions(
        ...     unit=np.array([0, 0, 1, 1]), query=np.array(["q"] * 4), position=np.array([1, 2, 2, 3]),
        ...     exposure=np.full(4, 8.0), clicks=np.array([8, 4, 4, 2]), impressions=np.full(4, 8))
        >>> np.exp(adjacent_chain(interventions).params["b"]).tolist()
        [0.5, 0.25]
    """
    shown, sums = _pair_sums(interventions)
    index = {int(k): i for i, k in enumerate(shown)}
    ratios = {anchor: 1.0}
    for step in (-1, 1):
        k = anchor
        while k in index and k + step in index:
            here, there = index[k], index[k + step]
            if not (sums[here, there] > 0 and sums[there, here] > 0):
                break
            ratios[k + step] = ratios[k] * sums[there, here] / sums[here, there]
            k += step
    return _result(ratios, anchor, shown, _info("adjacent_chain", interventions))


def _pivoted(interventions: Interventions, anchor: int, estimator: str) -> Propensities:
    shown, sums = _pair_sums(interventions)
    ratios = {anchor: 1.0}
    for pivot in np.flatnonzero(shown == anchor):
        for i in np.flatnonzero((sums[pivot] > 0) & (sums[:, pivot] > 0)):
            ratios[int(shown[i])] = sums[i, pivot] / sums[pivot, i]
    return _result(ratios, anchor, shown, _info(estimator, interventions))


def _pair_sums(interventions: Interventions) -> tuple[NDArray[np.int64], Array]:
    """Return the positions [K] and ĉ_{k,k'}(k) of every pair, [K, K]."""
    interventions = interventions.undivided()
    warn_of_clicked_pages(interventions, "a ratio of click rates", stacklevel=5)
    varying = interventions.unit_kind == "query" and bool(interventions.contexts)
    if varying and interventions.exposure_kind == "design":
        raise InputError("design exposures differ by context inside a unit: harvest with --unit context")
    shown, position = np.unique(interventions.position, return_inverse=True)
    _, unit = np.unique(interventions.unit, return_inverse=True)
    shape = (int(unit.max(initial=-1)) + 1, len(shown))
    # Rows of one unit and position, which differ by context, add up.
    exposure = csr_array((interventions.exposure, (unit, position)), shape=shape)
    clicks = csr_array((interventions.clicks.astype(np.float64), (unit, position)), shape=shape)
    rate, exposed = clicks.copy(), exposure.copy()
    rate.data = clicks.data / exposure.data
    exposed.data = np.ones_like(exposure.data)
    return shown, csr_array(rate.T @ exposed).toarray()


def _info(estimator: str, interventions: Interventions) -> dict[str, Any]:
    return {"estimator": estimator, "units": interventions.n_units, "clicks": int(interventions.clicks.sum())}


def position_counts(log: ClickLog, *, max_position: int | None = None) -> dict[int, tuple[int, int]]:
    """Return clicks and impressions at every position of a log, whatever was shown there."""
    columns = _count_positions(log, max_position)
    return dict(zip(columns["position"], zip(columns["clicks"], columns["impressions"], strict=True), strict=True))


def _count_positions(log: ClickLog, max_position: int | None) -> dict[str, list[int]]:
    t = log.table if max_position is None else log.table.filter(log.table.position <= max_position)
    return _fetch_counts(log, t.group_by(position=t.position.cast("int64")))


def _fetch_counts(log: ClickLog, grouped: Any) -> dict[str, list[int]]:
    """Return clicks and impressions of each group of a log, with the groups' keys."""
    from clickharvest.logs.incomplete_logs import refuse_clicks_alone

    refuse_clicks_alone(log)
    warn_of_clicked_pages(log, "a click rate", stacklevel=5)
    counts = grouped.agg(clicks=lambda t: t.clicks.sum().cast("int64"), impressions=lambda t: t.impressions.sum())
    counts = counts.mutate(impressions=counts.impressions.cast("int64"))
    columns: dict[str, list[int]] = log.engine.fetch(counts, task="Counting clicks").to_pydict()
    return columns


def _result(ratios: dict[int, float], anchor: int, shown: Any, info: dict[str, Any]) -> Propensities:
    """Return ratios p_k / p_anchor by position as propensities.

    Raises:
        NotIdentifiedError: there is no ratio but the anchor's own.
    """
    positions = tuple(sorted({int(k) for k in shown}))
    if len(ratios) < 2:
        raise NotIdentifiedError(
            f"{info['estimator']} cannot compare any position with position {anchor}: both need clicks "
            f"(positions found: {spell_positions(positions) or 'none'}); choose another anchor, or collect more"
        )
    supported = tuple(sorted(int(k) for k in ratios))
    b = np.log([float(ratios[k]) for k in supported if k != anchor])
    return constant_propensities(supported, anchor, b, positions, info)
