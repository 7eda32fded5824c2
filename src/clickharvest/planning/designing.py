"""Plans from a design: the widths that an experiment will give and its cost, and the swaps to run.

**Widths.** The clicks that the outline assumes are simulated a few times, and fitted as `PBM` would fit them: the plan
is the interval that the real data will get, with its pooling and query effects.

**Swaps.** Candidates are swaps of rank 1 with rank k and of neighbouring ranks. For shares s the design gives every
unit exposures and expected clicks, and these the information H(s) on log p, without a prior. The loss
Σ s_{ij} (p_i − p_j)(r_i − r_j) is linear in s; it is minimised subject to [H(s)⁻¹]_{kk} ≤ v at every position. Swaps
with rank 1 compare directly and cost much; neighbours cost little, but the errors of a chain of them add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.parameters import TOLERANCE
from clickharvest.planning.forecast import forecast
from clickharvest.planning.outline import Outline, Pair, transfer
from clickharvest.planning.traffic import log_margin, spell_margin, z_value
from clickharvest.words import finite, name_positions

Array = NDArray[np.float64]

DRAWS = 40
"""Simulated experiments whose widths are averaged, at most."""
FEWEST, SURE = 9, 0.02
"""The fewest of them, and the standard error of the mean log width at which they are enough."""
MANY = 50
"""Positions beyond which fewer experiments are enough, as their widths are averaged too."""
ROUNDS = 5
"""Times that swaps are chosen again where intervals come out wider or narrower than wanted."""
NEAR = (0.95, 1.0)
"""Width of the widest position, relative to what is wanted, at which the choice ends."""
MOST_MOVED = 0.5
"""Largest share of the pages on which a rank loses its own result."""
MOST_UNITS = 400
"""Units that the information is summed over; more take longer."""
MOST_POSITIONS = 100
"""Most positions among which swaps are chosen: the work grows with the third power."""
LEAST_SHARE = 1e-4
"""Shares below are not worth running."""


@dataclass(frozen=True, eq=False)
class DesignPlan:
    """The widths that an experiment will give, and its cost.

    Attributes:
        positions: positions but the anchor, [K].
        margin: expected half-width, e^{z sd} − 1; infinite where most simulated experiments link nothing, [K].
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
        """The widest half-width and the cost, in one line."""
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
                {"position": k, "margin": finite(margin)} for k, margin in zip(self.positions, self.margin, strict=True)
            ],
            "swaps": [{"ranks": list(pair), "share": share} for pair, share in self.swaps.items()],
            "chosen": self.chosen,
            "loss_of_clicks": self.loss,
            "loss_of_dcg": self.loss_dcg,
        }

    def __str__(self) -> str:
        lines = [self.sentence, "", "position  to expect"]
        for k, margin in zip(self.positions, self.margin, strict=True):
            lines.append(f"{k:>8}  {'nothing' if np.isinf(margin) else spell_margin(margin):>9}")
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
    """Return the widths that an experiment will give, and what it costs.

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
        >>> from clickharvest.planning import ranked_outline
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
    nearest, inflation = np.inf, 1.0
    for _ in range(ROUNDS):
        try:
            swaps = choose_swaps(outline, pages, width=width, level=level, inflation=inflation)
        except NotIdentifiedError:
            if best is None:
                raise
            break
        swapped = replace(outline, swaps=swaps)
        margin = expected_margins(swapped, pages, level=level, draws=draws, seed=seed)
        ratio = float(np.max(np.log1p(margin))) / log_margin(width)
        if best is None or abs(np.log(ratio)) < nearest:
            best, nearest = _plan(swapped, pages, margin, width, level, chosen=True), abs(np.log(ratio))
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
    log_sd = np.full((draws, k - 1), np.inf)
    for i in range(draws):
        try:
            fit = forecast(outline.simulate(pages, seed + i))
        except NotIdentifiedError:
            continue
        at = np.array(fit.positions) - 2
        log_sd[i, at[at >= 0]] = fit.log_sd_now[0, at >= 0]
        if i + 1 >= (FEWEST if k <= MANY else 3) and _error(log_sd[: i + 1]) <= SURE:
            log_sd = log_sd[: i + 1]
            break
    linked = np.isfinite(log_sd)
    mean = np.log(np.where(linked, log_sd, 1.0)).sum(axis=0) / np.maximum(linked.sum(axis=0), 1)
    with np.errstate(over="ignore"):
        margins: Array = np.expm1(z_value(level) * np.exp(mean))
    return np.where(2 * linked.sum(axis=0) > len(log_sd), margins, np.inf)


def _error(log_sd: Array) -> float:
    """Return the standard error of the mean log width of the positions that are always linked, [draws, K]."""
    always = np.isfinite(log_sd).all(axis=0)
    if not always.any():
        return np.inf
    mean = np.log(np.maximum(log_sd[:, always], 1e-300)).mean(axis=1)
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


def candidates(positions: int) -> list[Pair]:
    """Return the pairs that are tried.

    Raises:
        InputError: there are more than `MOST_POSITIONS` positions.

    Example:
        >>> candidates(4)
        [(1, 2), (1, 3), (1, 4), (2, 3), (3, 4)]
    """
    if positions > MOST_POSITIONS:
        raise InputError(
            f"{positions:,} positions are too many to choose swaps among: expected {MOST_POSITIONS} at most; plan "
            "fewer, or name the pairs, such as neighbours=.05"
        )
    return [(1, k) for k in range(2, positions + 1)] + [(k, k + 1) for k in range(2, positions)]


def choose_swaps(
    outline: Outline, pages: float, *, width: float = 0.1, level: float = 0.95, inflation: float = 1.0
) -> dict[Pair, float]:
    """Return the shares of swaps that give every position the width for the least loss in clicks.

    Args:
        outline: the experiment; its own swaps are left out, its arms stay.
        pages: pages of the experiment.
        width: half-width that is wanted.
        level: level of the intervals.
        inflation: how many times the variance of independent clicks the real one is.

    Raises:
        InputError: there are more than `MOST_POSITIONS` positions.
        NotIdentifiedError: even with half of the pages swapped the width is not reached.

    Example:
        >>> from clickharvest.planning import ranked_outline
        >>> chosen = choose_swaps(ranked_outline(3), 100_000)
        >>> sorted(chosen)
        [(1, 2), (2, 3)]
    """
    k = len(outline.examination)
    pairs = candidates(k)
    few = _some(outline)
    harm = np.array([replace(few, swaps={pair: 1.0}).loss() for pair in pairs])
    harm = np.maximum(harm, 1e-9 * max(harm.max(), 1e-9))
    wanted = (log_margin(width) / z_value(level)) ** 2 / inflation
    ends = np.zeros((k, len(pairs)))
    for column, (i, j) in enumerate(pairs):
        ends[[i - 1, j - 1], column] = 1.0

    @lru_cache(maxsize=2)
    def variances(logs: tuple[float, ...]) -> tuple[Array, Array]:
        return _variance(few, pairs, np.exp(logs), pages)

    def slack(logs: Array) -> Array:
        return np.asarray(np.log(wanted) - np.log(variances(tuple(logs))[0]))

    def slack_slopes(logs: Array) -> Array:
        variance, slopes = variances(tuple(logs))
        return np.asarray(-slopes * np.exp(logs) / variance[:, None])

    most = np.full(len(pairs), np.log(MOST_MOVED / k))
    if np.min(slack(most)) < 0:
        best = float(np.expm1(z_value(level) * np.sqrt(inflation * np.exp(np.log(wanted) - slack(most)).max())))
        raise NotIdentifiedError(
            f"{pages:,.0f} pages do not give ±{100 * width:g} % at every position, even if each rank were swapped "
            f"on half of them (about ±{100 * best:.0f} %): plan more pages, a larger width, or fewer positions"
        )
    scale = float(harm @ np.exp(most))

    def cost(logs: Array) -> tuple[float, Array]:
        of_pairs = harm * np.exp(logs) / scale
        return float(of_pairs.sum()), of_pairs

    conditions: Any = [
        {"type": "ineq", "fun": slack, "jac": slack_slopes},
        {
            "type": "ineq",
            "fun": lambda logs: MOST_MOVED - ends @ np.exp(logs),
            "jac": lambda logs: -ends * np.exp(logs),
        },
    ]
    options: Any = {"maxiter": 200, "ftol": 1e-8}
    bounds = [(float(np.log(LEAST_SHARE / 10)), float(np.log(MOST_MOVED)))] * len(pairs)
    start = most.tolist()
    solution = minimize(cost, start, method="SLSQP", jac=True, bounds=bounds, constraints=conditions, options=options)
    shares = np.exp(solution.x if np.min(slack(solution.x)) > -1e-3 else most)
    return {pair: float(share) for pair, share in zip(pairs, shares, strict=True) if share >= LEAST_SHARE}


def _some(outline: Outline) -> Outline:
    """Return some of the queries, drawn at random by their traffic: the solver evaluates them many times."""
    k = len(outline.examination)
    queries = max(1, MOST_UNITS // k)
    if len(outline.pages) <= queries:
        return replace(outline, swaps={})
    drawn = np.random.default_rng(0).choice(len(outline.pages), queries, replace=False, p=outline.pages)
    number = np.full(len(outline.pages), -1)
    number[drawn] = np.arange(queries)
    kept = number[outline.query] >= 0
    return replace(
        outline,
        query=number[outline.query[kept]],
        placed=outline.placed[kept],
        pages=np.full(queries, 1 / queries),
        relevance=outline.relevance[kept],
        swaps={},
    )


def _variance(outline: Outline, pairs: Sequence[Pair], shares: Array, pages: float) -> tuple[Array, Array]:
    """Return variances of log p_k / p_1 of all positions but 1, [K − 1], and their slopes along shares, [K − 1, pairs].

    A pair (i, j) moves exposures of a unit by δ = a_j − a_i, a those before swaps: to i, and from j. With x_k the rows
    of H⁻¹ and m_u their means by the unit's shares, the slope of [H⁻¹]_{kk} is −Σ_u δ w_u (p_i (x_{ki} − m_{uk})² − p_j
    (x_{kj} − m_{uk})²), w_u clicks of a unit at rank 1.
    """
    k = len(outline.examination)
    first, second = np.array(pairs).T - 1
    moved = np.bincount(first, shares, k) + np.bincount(second, shares, k)
    # A solver's steps may move a rank on more than all pages.
    shares = np.minimum(shares / max(moved.max(), 1.0), 1.0)
    matrix = outline.placed @ transfer(dict(zip(pairs, shares.tolist(), strict=True)), k)
    shown = pages * outline.pages[outline.query] * outline.relevance
    rate = matrix * outline.examination * shown[:, None]
    total = rate.sum(axis=1, keepdims=True)
    share = rate / np.maximum(total, 1e-300)
    information = np.diag(rate.sum(axis=0)) - (share * total).T @ share
    inverse = np.zeros((k, k - 1))
    inverse[1:] = np.linalg.pinv(information[1:, 1:], hermitian=True)
    mean = share @ inverse
    moves = (outline.placed[:, second] - outline.placed[:, first]) * shown[:, None]
    none, once, twice = moves.sum(axis=0)[:, None], moves.T @ mean, moves.T @ mean**2

    def part(rank: NDArray[np.int64]) -> Array:
        x = inverse[rank]
        return np.asarray(outline.examination[rank, None] * (x**2 * none - 2 * x * once + twice))

    variance: Array = np.maximum(np.diag(inverse[1:]), 1e-300)
    return variance, (part(second) - part(first)).T
