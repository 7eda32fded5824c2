"""ClickShare against an oracle from elsewhere: fixed-effects Poisson regression, pyfixest's `fepois`.

Clicks ~ Poisson(e_{u,k} p_k r_u) with a free effect per unit has the same maximum as ClickShare: given the clicks of a
unit, their shares are multinomial with π. So estimates and query-clustered errors must agree, but for a factor. Our
sandwich is scaled by Q / (Q − 1), with Q all queries of the sample; `fepois` drops the units without a click, which
tell nothing, and may lose queries with them: its G / (G − 1) is switched off, as is its (N − 1) / (N − k), and ours is
put in by hand.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.estimation import ClickShare, Fit, Sample, make_sample
from clickharvest.estimation.uncertainty import sandwich
from clickharvest.harvesting import Interventions
from clickharvest.model import Constant, Curve, Linear
from samples import simulated_interventions

pyfixest = pytest.importorskip("pyfixest", reason="the oracle is in the dev extra")
pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def interventions() -> Interventions:
    """160 units of 40 queries of unequal size at 2 to 4 positions, some without a click; two devices."""
    found = simulated_interventions(160, seed=5, steepness={"desktop": 0.5, "mobile": 1.3}, shown=6)
    query = np.random.default_rng(1).choice(40, size=160, p=np.arange(1, 41) / 820)
    query[np.bincount(found.unit, weights=found.clicks) == 0] = 99  # a query that has no click at all
    return replace(found, query=query[found.unit])


def oracle(interventions: Interventions, formula: str) -> Any:
    """Estimates and errors of `fepois`, clustered by query without any small-sample factor."""
    data = pandas.DataFrame(
        {
            "clicks": interventions.clicks, "unit": interventions.unit, "query": interventions.query,
            "position": interventions.position, "log_exposure": np.log(interventions.exposure),
            "mobile": (interventions.contexts["device"] == "mobile").astype(float),
        }
    )  # fmt: skip
    for k in (2, 3, 4):
        data[f"at_{k}"] = (data["position"] == k).astype(float)
        data[f"mobile_at_{k}"] = data[f"at_{k}"] * data["mobile"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of the units without a click that it drops
        return pyfixest.fepois(
            formula, data=data, vcov={"CRV1": "query"}, offset="log_exposure", iwls_tol=1e-12, fixef_tol=1e-12,
            ssc=pyfixest.ssc(k_adj=False, G_adj=False),
        )  # fmt: skip


def fitted(curve: Curve, sample: Sample) -> tuple[Any, Any]:
    """Parameters by name, and their clustered covariance."""
    fit = Fit(curve, ClickShare(sample), sample)
    ones, free = np.ones((1, sample.n_clusters)), np.zeros(1)
    flat = fit.solve(fit.starts(1, 0), ones, free, tolerance=1e-10).params[0]
    return fit.params(flat)["curve"], sandwich(fit, flat, 0.0)


def test_the_curve_without_context(interventions: Interventions) -> None:
    sample = make_sample(interventions, (1, 2, 3, 4))
    params, covariance = fitted(Constant((1, 2, 3, 4), 1, 0), sample)
    expected = oracle(interventions, "clicks ~ at_2 + at_3 + at_4 | unit")
    queries = sample.n_clusters
    clicked = len(np.unique(interventions.query[interventions.clicks > 0]))
    assert queries == clicked + 1  # otherwise the factor would go untested
    assert params["b"] == pytest.approx(expected.coef().to_numpy(), abs=1e-6)
    ours = np.sqrt(np.diag(covariance) * (queries - 1) / queries)
    assert ours == pytest.approx(expected.se().to_numpy(), rel=1e-4)


def test_one_binary_context_with_interactions(interventions: Interventions) -> None:
    """b_k is the log examination on desktop, W_k what a phone adds."""
    sample = make_sample(interventions, (1, 2, 3, 4))
    mobile = (interventions.contexts["device"] == "mobile").astype(int)
    assert len(mobile) == len(sample.unit)
    sample = replace(sample, x=np.array([[0.0], [1.0]]), context=mobile)
    params, covariance = fitted(Linear((1, 2, 3, 4), 1, 1), sample)
    terms = [*(f"mobile_at_{k}" for k in (2, 3, 4)), *(f"at_{k}" for k in (2, 3, 4))]  # W before b, as in the fit
    expected = oracle(interventions, f"clicks ~ {' + '.join(terms)} | unit")
    queries = sample.n_clusters
    found = np.concatenate([params["W"].ravel(), params["b"]])
    assert found == pytest.approx(expected.coef()[terms].to_numpy(), abs=1e-6)
    ours = np.sqrt(np.diag(covariance) * (queries - 1) / queries)
    assert ours == pytest.approx(expected.se()[terms].to_numpy(), rel=1e-4)
