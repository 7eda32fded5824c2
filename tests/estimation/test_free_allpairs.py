from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from clickharvest.errors import InputError
from clickharvest.estimation.estimators import CPBM
from clickharvest.estimation.loss import Fit
from clickharvest.estimation.objectives.allpairs import AllPairs, pair_rows
from clickharvest.estimation.sample import Sample
from clickharvest.model.curves import make_curve
from clickharvest.simulate import simulate_protocol

RECIPE: dict[str, Any] = {
    "objective": "allpairs", "curve": "mlp", "width": 0, "penalty": 0.0, "optimiser": "adam", "early_stopping": False,
    "starts": 1, "intervals": None,
}  # fmt: skip


def random_sample(seed: int = 0) -> Sample:
    """Return 30 units at 2 or 3 of 4 positions, in 6 queries with a context each; some are clicked every time."""
    random = np.random.default_rng(seed)
    rows = []
    for u in range(30):
        for k in np.sort(random.choice(4, random.integers(2, 4), replace=False)):
            shown = random.integers(1, 9)
            rows.append((u, u % 6, k, shown, random.binomial(shown, (0.1, 0.5, 1.0)[u % 3])))
    unit, query, position, impressions, clicks = np.array(rows).T
    return Sample(
        positions=(1, 2, 3, 5), x=random.normal(size=(6, 2)), n_clusters=6, unit_kind="context", unit=unit,
        context=query, position=position, exposure=impressions / 4, clicks=clicks, impressions=impressions,
        cluster=query,
    )  # fmt: skip


def test_objective_is_that_of_all_pairs_at_the_best_relevance() -> None:
    sample = random_sample()
    log_p = np.log(np.random.default_rng(1).uniform(0.05, 1.0, (6, 4)))
    weights = np.array([1.0, 0.0, 2.0, 1.0, 3.0, 1.0])
    rows = pair_rows(sample, "paper")
    expected = 0.0
    for query in range(6):
        for k in range(4):
            for other in range(k + 1, 4):
                own = (rows.cluster == query) & (rows.position == [[k], [other]]).all(axis=0)
                clicked, passed = rows.clicked[:, own].ravel(), rows.passed[:, own].ravel()
                if not own.any() or not clicked.any() or not (clicked + passed > 0).all():
                    continue
                h = np.exp(log_p[query, [k, other]])

                def loss(g: float, h: Any = h, clicked: Any = clicked, passed: Any = passed) -> float:
                    rest = np.where(passed > 0, np.log1p(-np.minimum(h * g, 1 - 1e-12)), 0.0)
                    return -float((clicked * np.log(h * g) + passed * rest).sum())

                best = minimize_scalar(loss, bounds=(1e-9, 1.0), method="bounded", options={"xatol": 1e-12})
                expected -= weights[query] * min(best.fun, loss(1.0))
    found, _, _ = AllPairs(sample, relevance="free").value_and_slopes(log_p, None, weights)
    assert found == pytest.approx(expected, rel=1e-7)


def test_pairs_that_tell_nothing_are_left_out() -> None:
    rows = AllPairs(random_sample(), relevance="free").rows
    assert (rows.clicked.sum(axis=0) > 0).all()
    assert (rows.clicked + rows.passed > 0).all()


@pytest.fixture(scope="module")
def few_queries() -> Any:
    """100 queries, 400 times each: relevance is noise that a network of the context cannot follow."""
    return simulate_protocol(
        training_queries=40_000, queries=100, test_queries=100, positions=6, eta=0.5, zeta=1.0, seed=0
    )


def error(model: CPBM, simulation: Any) -> float:
    contexts = {name: simulation.test_contexts[:, j] for j, name in enumerate(simulation.context)}
    truth = simulation.test_examination / simulation.test_examination[:, :1]
    return float(np.abs(1 - model.predict(contexts).propensity / truth).mean())


def test_a_thousand_displays_are_fitted_as_closely_as_ten() -> None:
    """Rates count in the objective, and clicks are a thousand times as many: the fit must not stop where it started."""
    random = np.random.default_rng(0)
    pairs = np.array([(i, j) for i in range(4) for j in range(i + 1, 4)])
    unit, position, shown = np.repeat(np.arange(300), 2), np.tile(pairs, (50, 1)).ravel(), np.full(600, 1000)
    truth = np.arange(1, 5) ** -0.7  # the fit starts from 1/k
    clicks = random.binomial(shown, truth[position] * random.beta(1, 2, 300)[unit])
    sample = Sample(
        positions=(1, 2, 3, 4), x=np.zeros((1, 0)), n_clusters=300, unit=unit, context=0 * unit, position=position,
        exposure=shown * 1.0, clicks=clicks, impressions=shown, cluster=unit,
    )  # fmt: skip
    fit = Fit(make_curve("constant", (1, 2, 3, 4), 1, 0), AllPairs(sample), sample)
    found = fit.solve(fit.starts(1, 0), np.ones((1, 300)), np.zeros(1)).params[0]
    assert np.exp(fit.params(found)["curve"]["b"]) == pytest.approx(truth[1:], rel=0.05)


def test_few_queries_shown_often_need_free_relevance(few_queries: Any) -> None:
    interventions = few_queries.interventions()
    chosen = CPBM(**RECIPE, relevance="auto").fit(interventions)
    free = CPBM(**RECIPE, relevance="free").fit(interventions)
    network = CPBM(**RECIPE, relevance="mlp").fit(interventions)
    info = chosen.propensities_.info
    assert info["relevance"] == "free"
    assert set(info["relevance_held_out"]) == {"constant", "mlp", "free"}
    assert "relevance free" in " ".join(str(chosen).split())
    np.testing.assert_array_equal(chosen.propensities_.params["v"], free.propensities_.params["v"])
    assert error(chosen, few_queries) < 0.6 * error(network, few_queries)


def test_unknown_relevance_is_told(few_queries: Any) -> None:
    with pytest.raises(InputError, match="no relevance model 'some': expected auto, constant, mlp, squares or free"):
        CPBM(**RECIPE, relevance="some").fit(few_queries.interventions())  # type: ignore[arg-type]


def test_auto_needs_queries_to_keep_aside(few_queries: Any) -> None:
    interventions = few_queries.interventions()
    busiest = np.bincount(np.unique(interventions.query, return_inverse=True)[1], interventions.clicks).argmax()
    own = interventions.take(interventions.query == np.unique(interventions.query)[busiest])
    with pytest.raises(InputError, match="all clicks are of one query"):
        CPBM(**RECIPE, relevance="auto", anchor=int(own.position[own.clicks > 0][0])).fit(own)
