"""Tails of the laws that tests of a log refer to."""

from __future__ import annotations

from scipy.special import betainc, betaincc, chdtrc


def chi_square_tail(x: float, freedom: int) -> float:
    """Return the probability that a χ² variable exceeds x.

    Example:
        >>> round(chi_square_tail(3.84, 1), 3)
        0.05
    """
    return float(chdtrc(freedom, x))


def hotelling_tail(statistic: float, freedom: int, groups: int) -> float:
    """Return the probability that T = Uᵀ V⁻¹ U exceeds a value, U = Σ_g u_g, V = Σ_g u_g u_gᵀ over so many groups.

    T / G ~ Beta(r/2, (G − r)/2) for groups alike with normal u_g. T cannot exceed G: a χ² law, its limit for many
    groups, would seldom reject where groups are not many times the degrees of freedom.

    Example:
        >>> round(hotelling_tail(3.84, 1, 10_000), 3), round(hotelling_tail(30.1, 19, 100), 3)
        (0.05, 0.032)
    """
    share = min(max(statistic / groups, 0.0), 1.0)
    return float(betaincc(freedom / 2, (groups - freedom) / 2, share)) if groups > freedom else 1.0


def squares_tail(statistic: float, mean: float, products: float, fourth: float, entries: int) -> float:
    """Return the probability that X² = |Σ_g d_g|² exceeds a value, d_g being independent of each other, with mean 0.

    X² = Σ_g |d_g|² + Σ_{g≠h} d_g·d_h: the second part has mean 0, and the variance 2 v, v = Σ_{g≠h} (d_g·d_h)². So X²
    over Σ_g |d_g|² is about χ²_ν / ν with ν = (Σ_g |d_g|²)² / v, at most the number of entries of d. The larger some
    groups are, the less sure is v: with G = (Σ_g |d_g|²)² / Σ_g |d_g|⁴ groups of equal weight the law is F's with ν and
    2 G ν degrees of freedom (the factor by simulation). No covariance is inverted: this holds with fewer groups than d
    has entries, and with d far from normal.

    Args:
        statistic: X².
        mean: Σ_g |d_g|².
        products: Σ_{g,h} (d_g·d_h)², which is tr (Σ_g d_g d_gᵀ)².
        fourth: Σ_g |d_g|⁴.
        entries: how many d has.

    Example:
        A thousand groups in one direction, at its 5 % point; three groups, all of which point to the same side.

        >>> round(squares_tail(3.84, 1.0, 1.0, 0.001, 1), 3), round(squares_tail(3.0, 1.0, 1.0, 1 / 3, 1), 2)
        (0.05, 0.13)
    """
    if not mean > 0:
        return 1.0
    freedom = mean**2 / max(products - fourth, mean**2 / entries)
    rest = 2 * freedom * mean**2 / fourth
    return float(betainc(rest / 2, freedom / 2, rest / (rest + freedom * statistic / mean)))
