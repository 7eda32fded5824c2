"""Plans from a design: the widths that an experiment will give, and what it costs, before it is run.

The clicks that the outline assumes are simulated, and fitted as `PBM` would fit them, a few times: what is planned is
the very interval that the real data will get, with its pooling, query effects and all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.parameters import TOLERANCE
from clickharvest.planning.forecast import forecast
from clickharvest.planning.outline import Outline, Pair
from clickharvest.planning.swaps import candidates, choose_swaps
from clickharvest.planning.traffic import log_margin, z_value
from clickharvest.words import name_positions

Array = NDArray[np.float64]

DRAWS = 40
"""Simulated experiments whose widths are averaged, at most."""
FEWEST, SURE = 9, 0.02
"""The fewest of them, and the error of the mean log width at which they are enough."""
MANY = 50
"""Positions beyond which fewer experiments average as well, and take as long."""
ROUNDS = 5
"""How often swaps are chosen again, where intervals come out wider or narrower than wanted."""
NEAR = (0.95, 1.0)
"""Width of the widest position, of what is wanted, that is near enough."""


@dataclass(frozen=True, eq=False)
class DesignPlan:
    """What an experiment will give.

    Attributes:
        positions: positions but the anchor, [K].
        margin: half-width to expect, e^{z sd} − 1; infinite where most simulated experiments link nothing, [K].
        pages: pages of the experiment.
        swaps: share of the pages on which a pair of ranks is exchanged.
        loss: clicks that swaps cost, as a share of all.
        loss_dcg: the same of DCG, discounts 1 / log2(1 + k).
        width: the half-width that is wanted.
        level: level of the intervals.
        chosen: whether the swaps were chosen here.
    """

    positions: tuple[int, ...]
    margin: Array
    pages: float
    swaps: dict[Pair, float]
    loss: float
    loss_dcg: float
    width: float
    level: float
    chosen: bool

    @property
    def sentence(self) -> str:
        """What it gives, in one line."""
        short = [k for k, margin in zip(self.positions, self.margin, strict=True) if margin > self.width * 1.02]
        cost = f" Swaps cost {100 * self.loss:.2g} % of the clicks." if self.swaps else ""
        if not short:
            return (
                f"{self.pages:,.0f} pages give ±{100 * self.width:g} % at every position (widest: "
                f"±{100 * self.margin.max():.0f} %).{cost}"
            )
        return f"{self.pages:,.0f} pages do not give ±{100 * self.width:g} % at {name_positions(short)}.{cost}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON holds it."""
        return {
            "advice": self.sentence,
            "pages": self.pages,
            "width": self.width,
            "level": self.level,
            "positions": [
                {"position": k, "margin": float(margin) if np.isfinite(margin) else None}
                for k, margin in zip(self.positions, self.margin, strict=True)
            ],
            "swaps": [{"ranks": list(pair), "share": share} for pair, share in self.swaps.items()],
            "chosen": self.chosen,
            "loss_of_clicks": self.loss,
            "loss_of_dcg": self.loss_dcg,
        }

    def __str__(self) -> str:
        lines = [self.sentence, "", "position  to expect"]
        for k, margin in zip(self.positions, self.margin, strict=True):
            told = f"±{100 * margin:.0f} %" if margin < 10 else "nothing" if np.isinf(margin) else "over ±1,000 %"
            lines.append(f"{k:>8}  {told:>9}")
        if np.isinf(self.margin).any():
            lines.append("nothing: no ranker, no swap, or too few clicks link it to position 1.")
            if not self.swaps and np.isinf(self.margin).all():
                lines.append("Name the rankings of several rankers (--rankings), or swaps (--swaps auto).")
        if self.swaps:
            what = "Swaps to run" if self.chosen else "Swaps"
            lines += ["", f"{what}, and the share of the pages:"]
            lines += [f"  {i} with {j}: {100 * share:.2g} %" for (i, j), share in self.swaps.items()]
            lines.append(f"They cost {100 * self.loss:.2g} % of the clicks, {100 * self.loss_dcg:.2g} % of DCG.")
        return "\n".join(lines)


def plan_from_design(
    outline: Outline,
    pages: float,
    *,
    width: float = TOLERANCE,
    level: float = 0.95,
    choose: bool = False,
    draws: int = DRAWS,
    seed: int = 0,
) -> DesignPlan:
    """Tell the widths that an experiment will give, and what it costs.

    Args:
        outline: the experiment.
        pages: its pages.
        width: half-width that is wanted.
        level: level of the intervals.
        choose: whether to choose the swaps that reach it for the least loss in clicks, see `choose_swaps`.
        draws: simulated experiments whose widths are averaged, at most.
        seed: seed of these.

    Raises:
        InputError: there are no pages.
        NotIdentifiedError: no swaps reach the width.

    Example:
        >>> from clickharvest.planning.outline import ranked_outline
        >>> found = plan_from_design(ranked_outline(4, swaps={(1, 2): 0.2, (1, 3): 0.2, (1, 4): 0.2}), 20_000)
        >>> found.positions, bool((found.margin < 0.2).all())
        ((2, 3, 4), True)
    """
    if not (pages >= 1 and np.isfinite(pages)) or draws < 1:
        raise InputError(f"{pages} pages: expected 1 or more")
    log_margin(width)
    if not choose:
        margin = expected_margins(outline, pages, level=level, draws=draws, seed=seed)
        return _plan(outline, pages, margin, width, level, chosen=False)
    candidates(len(outline.examination))  # too many positions are refused before anything is simulated
    none = replace(outline, swaps={})
    margin = expected_margins(none, pages, level=level, draws=draws, seed=seed)
    if margin.max() <= width:
        return _plan(none, pages, margin, width, level, chosen=True)
    best: DesignPlan | None = None
    inflation = 1.0
    for _ in range(ROUNDS):
        try:
            swaps = choose_swaps(outline, pages, width=width, level=level, inflation=inflation)
        except NotIdentifiedError:
            if best is None:
                raise
            break
        tried = replace(outline, swaps=swaps)
        margin = expected_margins(tried, pages, level=level, draws=draws, seed=seed)
        ratio = float(np.max(np.log1p(margin))) / log_margin(width)
        if best is None or abs(np.log(ratio)) < abs(np.log(np.log1p(best.margin.max()) / log_margin(width))):
            best = _plan(tried, pages, margin, width, level, chosen=True)
        if NEAR[0] <= ratio <= NEAR[1]:
            break
        inflation *= float(np.clip(ratio, 1 / 3, 3.0)) ** 2
    assert best is not None
    return best


def expected_margins(outline: Outline, pages: float, *, level: float, draws: int, seed: int) -> Array:
    """Return e^{z sd} − 1 of every position but the first, sd the geometric mean over simulated experiments, [K].

    Experiments are simulated until the error of the mean is at most `SURE`, or `draws` of them.
    """
    k = len(outline.examination)
    found = np.full((draws, k - 1), np.inf)
    for i in range(draws):
        try:
            told = forecast(outline.simulate(pages, seed + i))
        except NotIdentifiedError:
            continue
        at = np.array(told.positions) - 2
        found[i, at[at >= 0]] = told.log_sd_now[0, at >= 0]
        if i + 1 >= (FEWEST if k <= MANY else 3) and _error(found[: i + 1]) <= SURE:
            found = found[: i + 1]
            break
    linked = np.isfinite(found)
    mean = np.log(np.where(linked, found, 1.0)).sum(axis=0) / np.maximum(linked.sum(axis=0), 1)
    with np.errstate(over="ignore"):
        margins: Array = np.expm1(z_value(level) * np.exp(mean))
    # What most experiments do not link has no width to expect.
    return np.where(2 * linked.sum(axis=0) > len(found), margins, np.inf)


def _error(found: Array) -> float:
    """Return the standard error of the mean log width of the positions that are always linked, [draws, K]."""
    always = np.isfinite(found).all(axis=0)
    if not always.any():
        return np.inf
    mean = np.log(np.maximum(found[:, always], 1e-300)).mean(axis=1)
    return float(mean.std(ddof=1) / np.sqrt(len(mean)))


def _plan(outline: Outline, pages: float, margin: Array, width: float, level: float, *, chosen: bool) -> DesignPlan:
    k = len(outline.examination)
    discount = 1 / np.log2(np.arange(2, k + 2))
    dcg = float(discount @ (outline.relevance_by_rank * outline.shown))
    return DesignPlan(
        positions=tuple(range(2, k + 1)),
        margin=margin,
        pages=float(pages),
        swaps=dict(outline.swaps),
        loss=outline.loss() / outline.clicks(),
        loss_dcg=outline.loss(discount=discount) / dcg,
        width=width,
        level=level,
        chosen=chosen,
    )
