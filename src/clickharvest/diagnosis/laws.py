"""Tails of the laws that tests of a log refer to. SciPy's would cost a quick check a third of its time."""

from __future__ import annotations

import math

FEWEST = 5
"""Effective groups that tell how groups differ."""


def normal_tail(z: float) -> float:
    """Return the probability that a standard normal variable exceeds z.

    Example:
        >>> round(normal_tail(1.96), 4)
        0.025
    """
    return math.erfc(z / math.sqrt(2)) / 2


def two_sided(total: float, variance: float) -> float:
    """Return the probability that a normal variable of mean 0 is at least as far from it; 1 without variance.

    Example:
        >>> round(two_sided(-1.96, 1.0), 3), two_sided(1.0, 0.0)
        (0.05, 1.0)
    """
    return 2 * normal_tail(abs(total) / math.sqrt(variance)) if variance > 0 else 1.0


def skewed_tail(total: float, squares: float, cubes: float) -> float:
    """Return the probability of so large a sum of skewed parts of mean 0, over its own standard error; 1 without any.

    A sum Σx whose error √Σx² comes from the same x is large where its error is, so that skewed parts seldom reach a
    normal tail. With t = Σx / √Σx² and g = Σx³ / (Σx²)^{3/2}, Hall's t + g t² / 3 + g² t³ / 27 + g / 6 is about normal.

    Args:
        total: Σx.
        squares: Σx².
        cubes: Σx³.

    Example:
        >>> round(skewed_tail(1.645, 1.0, 0.0), 3), round(skewed_tail(1.4, 1.0, 0.2), 3), skewed_tail(0.0, 0.0, 0.0)
        (0.05, 0.058, 1.0)
    """
    if not squares > 0:
        return 1.0
    t, skew = total / math.sqrt(squares), cubes / squares**1.5
    return normal_tail(t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6)


def chi_square_tail(x: float, freedom: int) -> float:
    """Return the probability that a χ² variable exceeds x.

    The closed form for whole degrees of freedom, h = x/2: Σ e^{−h} h^i / Γ(i+1) over i = 0, 1, … < freedom/2 where they
    are even; over i = ½, 3/2, … and erfc √h where they are odd.

    Example:
        >>> round(chi_square_tail(3.84, 1), 3)
        0.05
    """
    h, odd = x / 2, freedom % 2
    if not h:
        return 1.0
    powers = (i + odd / 2 for i in range(freedom // 2))
    terms = (math.exp(i * math.log(h) - h - math.lgamma(i + 1)) for i in powers)
    return math.fsum([math.erfc(math.sqrt(h)) * odd, *terms])


def hotelling_tail(statistic: float, freedom: int, groups: int) -> float:
    """Return the probability that T = Uᵀ V⁻¹ U exceeds a value, U = Σ_g u_g, V = Σ_g u_g u_gᵀ over so many groups.

    T / G ~ Beta(r/2, (G − r)/2) for groups alike with normal u_g. T cannot exceed G: a χ² law, its limit for many
    groups, would seldom reject where groups are not many times the degrees of freedom.

    Example:
        >>> round(hotelling_tail(3.84, 1, 10_000), 3), round(hotelling_tail(30.1, 19, 100), 3)
        (0.05, 0.032)
    """
    share = min(max(statistic / groups, 0.0), 1.0)
    return 1.0 - _incomplete_beta(share, freedom / 2, (groups - freedom) / 2) if groups > freedom else 1.0


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
    return _incomplete_beta(rest / (rest + freedom * statistic / mean), rest / 2, freedom / 2)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return Pr(Beta(a, b) < x), by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d, fraction = 1.0, 0.0, 1.0
    for i in range(1_000):
        m = i // 2
        numerator = 1.0
        if i:
            over = (a + 2 * m - 1) * (a + 2 * m) if i % 2 == 0 else (a + 2 * m) * (a + 2 * m + 1)
            numerator = (m * (b - m) if i % 2 == 0 else -(a + m) * (a + b + m)) * x / over
        d = 1 / (1 + numerator * d or 1e-300)
        c = 1 + numerator / c or 1e-300
        fraction *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * (fraction - 1.0)


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that a variable with Student's law is at least as far from 0.

    Example:
        >>> round(student_tail(2.262, 9), 3), round(student_tail(-1.96, 1e6), 3)
        (0.05, 0.05)
    """
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def clustered_tail(
    total: float, information: float, squares: float, products: float, sizes: float, freedom: float = math.inf
) -> float:
    """Return the probability of so large a sum of scores U = Σ_g U_g, independent groups g having information V_g.

    The variance of groups is Σ_g (U_g − θ V_g)² · G / (G − 1), θ = U / Σ V_g, G = (Σ V_g)² / Σ V_g² being their
    effective number: what all groups have in common is taken out, so that a strong effect is not mistaken for noise.
    U over its root has Student's law with G − 1 degrees of freedom.

    Fewer than `FEWEST` groups tell too little of how groups differ: the larger of that variance and of Σ V_g, that of
    independent clicks, counts, with a normal law. (With more groups the larger of both would be a test that rejects too
    seldom: the variance of groups is by chance too large as often as too small, and then only the former would count.)

    Args:
        total: U.
        information: Σ V_g.
        squares: Σ U_g².
        products: Σ U_g V_g.
        sizes: Σ V_g².
        freedom: degrees of freedom at most, where few groups make most of the variance.

    Example:
        Five groups with information 1 and scores 2, 1, 1, 1, 0; two with scores 3 and 1.

        >>> round(clustered_tail(5.0, 5.0, 7.0, 5.0, 5.0), 3), round(clustered_tail(4.0, 2.0, 10.0, 4.0, 2.0), 3)
        (0.034, 0.046)
    """
    if not information > 0:
        return 1.0
    common, groups = total / information, information**2 / sizes
    if groups < 1 + 1e-9:
        return two_sided(total, information)
    between = (squares - 2 * common * products + common**2 * sizes) * groups / (groups - 1)
    if groups < FEWEST - 1e-9 or between <= 1e-9 * information:  # groups alike to the last digit tell nothing, either
        return two_sided(total, max(information, between))
    return student_tail(total / math.sqrt(between), min(groups - 1, freedom))
