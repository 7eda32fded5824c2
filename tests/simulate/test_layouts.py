"""Each layout of places: the whole way from its log to propensities, against its truth."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from scipy.stats import chi2

from clickharvest import PBM, harvest, read_log
from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import InputError
from clickharvest.simulate import LAYOUTS, simulate_places
from clickharvest.weights.weighing import weigh


@pytest.mark.parametrize("layout", LAYOUTS)
def test_places_are_estimated_within_their_errors(layout: str) -> None:
    table, truth = simulate_places(layout, pages=3_000, seed=1)
    log = read_log(table, place=truth.places.columns, page="view")
    assert log.places == truth.places
    assert diagnose(log).identified
    model = PBM().fit(harvest(log)).propensities_
    assert model.draws is not None
    error = model.params["b"] - np.log(truth.examination[0, 1:])
    wald = error @ np.linalg.solve(np.cov(model.draws.T), error)
    assert wald < chi2.ppf(0.999, len(error))
    assert np.abs(error).max() < 0.3
    weights = weigh(log, model).table
    some = log.engine.fetch(weights.limit(200), task="").to_pylist()
    place = {label: k for k, label in enumerate(truth.places.labels)}
    own = [model.predict().propensity[0][place[tuple(row[c] for c in truth.places.columns)]] for row in some]
    assert [row["propensity"] for row in some] == pytest.approx(own)


def test_pages_that_are_not_gone_to_are_not_shown() -> None:
    table, _ = simulate_places("pages", pages=4_000)
    views = [pc.count_distinct(table.filter(pc.equal(table["page"], page))["view"]).as_py() for page in (1, 2, 3)]
    assert views[0] == 4_000
    assert views[1:] == pytest.approx([0.6 * 4_000, 0.36 * 4_000], rel=0.1)


def test_mobile_may_be_steeper_and_a_seed_gives_the_same_log_again() -> None:
    _, truth = simulate_places(steeper=2.0, pages=10)
    assert np.log(truth.examination[1]) == pytest.approx(2 * np.log(truth.examination[0]))
    assert simulate_places("ads", pages=50, seed=3)[0].equals(simulate_places("ads", pages=50, seed=3)[0])
    with pytest.raises(InputError, match="no layout 'list': expected one of grid, carousel, ads, pages"):
        simulate_places("list")
