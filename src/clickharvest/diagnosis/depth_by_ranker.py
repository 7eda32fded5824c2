"""Are the pages of all rankers read to the same depth?

Phones that mostly meet one ranker, or a layout of its own, make its pages be read less far. The curve then is neither
that of phones nor of others nor their mean: which of them counts differs from position to position, with the rankers
that show results there.
"""

from __future__ import annotations

import math

import numpy as np

from clickharvest.diagnosis.arm_displays import MOST_RANKERS
from clickharvest.diagnosis.arm_scores import ArmScores, Score, spell_power
from clickharvest.diagnosis.findings import MATTERS, Finding, sign_of, spell_sign
from clickharvest.words import clean_text

NAME = "depth by ranker"


def depth_by_ranker(scores: ArmScores) -> list[Finding]:
    """Test whether clicks fall as far down the page with one ranker as with others.

    The clicks of unit u at position k fall to rankers as C_{u,a,k} ∝ n_{u,a,k} θ_a k^{δ_a}, n displays: the same result
    at the same place, so that neither relevance nor the order of results matters. δ_a = 0 where the pages of all
    rankers are read alike. Each ranker is tested against the others (`ArmScores.tests`), and the smallest p times their
    number is told. The number is the estimate of δ_a.
    """
    clicks = np.bincount(scores.arm, scores.clicks)
    arms = sorted(range(len(clicks)), key=lambda a: (-clicks[a], str(scores.names[a])))[:MOST_RANKERS]
    arms = arms[:1] if len(clicks) == 2 else arms  # of two, one is the other's mirror image
    columns = (np.where(scores.arm == a, scores.log_k, 0.0) for a in arms)
    tests = zip(arms, scores.tests(columns, scores.arm), strict=True)
    found = [(test.p_value, a, test) for a, test in tests if test is not None]
    return [_tell(scores, *min(found)[1:], len(arms))] if found else []


def _tell(scores: ArmScores, a: int, test: Score, arms: int) -> Finding:
    """Return what is told of the ranker with the smallest p."""
    power, p_value = test.estimate, min(1.0, test.p_value * arms)
    told = spell_power("the position", test, p_value)
    status = sign_of(p_value)
    if status != "warning":
        sentence = f"{spell_sign(p_value)} that pages of rankers are read to different depths ({told})."
        return Finding(NAME, status, sentence, power, p_value)
    more, last = power > 0, float(scores.log_k.max())
    begin = (
        f"Pages of ranker {clean_text(scores.names[a], 24)} are read {'farther' if more else 'less far'} than others: "
        f"from position 1 to {math.exp(last):.0f}, clicks on the same results at the same positions fall "
        f"{math.exp(min(abs(power) * last, 50.0)):.2f} times {'less' if more else 'more'} ({told})"
    )
    if abs(power) < MATTERS:
        return Finding(NAME, "note", f"{begin}, which is too little to matter.", power, p_value)
    sentence = (
        f"{begin}. Its users, or its layout, are others, and the curve mixes both. Name what differs (--context), such "
        "as the device."
    )
    return Finding(NAME, "warning", sentence, power, p_value)
