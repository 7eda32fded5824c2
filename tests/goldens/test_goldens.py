"""Six fixed logs give the answers they gave: see `goldens`."""

from __future__ import annotations

import copy

import pytest

from goldens.goldens import GOLDENS, differences, measure, read


@pytest.mark.parametrize("name", GOLDENS)
def test_a_fixed_log_gives_the_answers_it_gave(name: str) -> None:
    assert list(differences(measure(GOLDENS[name]), read(name))) == []


def test_another_answer_is_seen() -> None:
    """Tolerances are for other digits: a moved propensity, a wider interval, one more click and a new key are told."""
    golden = read("small")
    row = golden["propensities"][5]
    half = (row["upper"] / row["lower"]) ** 0.5
    for change in ({"propensity": row["propensity"] * half**0.3}, {"upper": row["upper"] * half**0.3}):
        other = copy.deepcopy(golden)
        other["propensities"][5] |= change
        assert len(list(differences(other, golden))) == 1
    other = copy.deepcopy(golden)
    other["check"]["totals"]["clicks"] += 1
    other["fit"]["new"] = 1
    assert len(list(differences(other, golden))) == 2
    assert list(differences(golden, golden)) == []
