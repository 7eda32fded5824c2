"""The state of a position in a context: what the budget says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clickharvest.model.budget import STATES, Budget, most_noise
from clickharvest.model.prediction import nearest_trusted, nearest_trusted_places
from clickharvest.positions.places import Places
from samples import fixed_curve


@pytest.mark.parametrize("seed", range(20))
def test_the_worst_context_has_the_word_of_the_budget(seed: int) -> None:
    """And no context a better state than what is known of it deserves."""
    random = np.random.default_rng(seed)
    noise, time, arms = (random.gamma(1, scale, (4, 30)) for scale in (0.15, 0.1, 0.1))
    total = np.sqrt(noise**2 + time**2 + arms**2)
    terms = {"noise": noise, "time": time, "arms": arms}
    whole, positions = np.expm1(total.max(axis=0)), tuple(range(2, 32))
    budget = Budget(
        positions, tuple(whole), (0.0,) * 30,
        {name: tuple(np.expm1(sizes.max(axis=0))) for name, sizes in terms.items()}, tuple(whole), {},
    )  # fmt: skip
    usable, with_care = most_noise(Budget.from_dict(budget.to_dict()), positions, anchor=1)
    codes = (noise > usable).astype(int) + (noise > with_care)
    alone = [
        Budget((k,), (up,), (0.0,), {"noise": (up,)}, (up,), {}).word for k, up in zip(positions, whole, strict=True)
    ]
    assert [STATES[code] for code in codes.max(axis=0)] == alone
    assert (codes >= (total > np.log1p(0.3)).astype(int) + (total > np.log(2))).all()


def test_what_is_known_of_positions_without_a_budget_or_beyond_it() -> None:
    model = fixed_curve({1: 0, 2: -0.5, 3: -1.0, 9: -1.5}, sd=0.2)
    assert model.predict().state.tolist() == [["usable", "with care", "with care", "with care"]]
    assert fixed_curve({1: 0, 2: -0.5, 3: -1.0}).predict().state.tolist() == [["usable"] * 3]
    assert fixed_curve({1: 0, 2: -0.5}, sd=2.0).predict().state.tolist() == [["usable", "cannot tell"]]

    def with_budget(**about: object) -> list[str]:
        told = {"positions": (2, 3), "up": (0.5, 1.5), "down": (0.1, 0.1), "straight": (0, 0), "untested": {}}
        told |= {"terms": {"noise": (0.4, 0.4), "time": (0.05, 1.2)}} | about
        kept = Budget(**told).to_dict()  # type: ignore[arg-type]
        return list(replace(model, info={"budget": kept}).predict().state[0])

    # Position 9 was not asked for: it is like position 3, the nearest one.
    assert with_budget() == ["usable", "with care", "cannot tell", "cannot tell"]
    assert with_budget(tolerance=0.6) == ["usable", "usable", "cannot tell", "cannot tell"]
    assert with_budget(reason="the log is no log") == ["usable", *["cannot tell"] * 3]


def test_places_that_nobody_can_tell_have_the_weight_of_a_middling_one_like_them() -> None:
    places = Places.of(("row", "column"), [(i, j) for i in (1, 2) for j in (1, 2, 3)])
    log_p = np.log([[1, 0.8, 0.2, 0.6, 0.5, 0.1]])
    trusted = np.array([[True, True, False, True, True, False]])

    def lender(place: int, trusted: np.ndarray = trusted) -> int:
        return int(nearest_trusted_places(trusted, 0, log_p, range(1, 7), places, places, np.array([place]))[0]) + 1

    assert [lender(k) for k in (1, 2, 4, 5)] == [1, 2, 4, 5]
    # Row 1 has (1, 1) and (1, 2) to lend, row 2 has (2, 1) and (2, 2): the higher of two.
    assert (lender(3), lender(6)) == (1, 4)
    assert lender(6, np.zeros_like(trusted)) == 1
    assert nearest_trusted(np.zeros((1, 4), dtype=bool), anchor=2).tolist() == [[2, 2, 2, 2]]
