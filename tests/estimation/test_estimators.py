from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clickharvest.errors import ConvergenceWarning, HarvestWarning, InputError, NotIdentifiedError
from clickharvest.estimation import Fit
from clickharvest.estimation.estimators import CPBM, PBM
from clickharvest.estimation.optimise import Solution, Status
from clickharvest.harvesting.interventions import Interventions
from clickharvest.model.loading import load_propensities
from clickharvest.simulate.examination import fold

ETA = {"desktop": 0.6, "mobile": 1.3}


def simulated(seed: int, units: int = 1_500, positions: int = 5, shows: int = 40) -> Interventions:
    """Units on two devices, each shown at two random positions; examination k^{−η(device)}, 100 queries."""
    random = np.random.default_rng(seed)
    pair = np.sort([random.choice(positions, 2, replace=False) + 1 for _ in range(units)], axis=1)
    device = np.array(["desktop", "mobile"])[random.integers(2, size=units)]
    eta = np.array([ETA[d] for d in device])
    shown = random.integers(1, shows, (units, 2))
    clicks = random.binomial(shown, pair ** -eta[:, None] * random.beta(1, 2, (units, 1)))
    return Interventions(
        unit=np.repeat(np.arange(units), 2),
        query=np.repeat(np.sort(random.integers(100, size=units)), 2),
        position=pair.ravel(),
        exposure=shown.ravel().astype(float),
        clicks=clicks.ravel(),
        impressions=shown.ravel(),
        contexts={"device": np.repeat(device, 2).astype(object)},
    )


@pytest.fixture(scope="module")
def interventions() -> Interventions:
    return simulated(0)


def error(model: CPBM) -> float:
    predicted = model.predict({"device": list(ETA)}).propensity
    truth = np.array([np.arange(1, 6) ** -eta for eta in ETA.values()])
    return float(np.abs(np.log(predicted / truth)).mean())


def test_auto_finds_the_truth_and_says_how(interventions: Interventions) -> None:
    model = CPBM(intervals=None).fit(interventions)
    assert error(model) < 0.05
    table = model.propensities_.info["selection"]
    # Two devices are on a line, which needs no bends: no index is tried.
    assert {row["curve"]["name"] for row in table} == {"power", "linear", "mlp"}
    assert [row for row in table if row["chosen"]] == [max(table, key=lambda row: row["score"])]
    assert "Selected by cross-validation" in str(model)


def test_auto_takes_an_index_where_positions_bend_along_one_number() -> None:
    """A page with a fold: where it comes, one number of three tells. Straight lines in these cannot follow."""
    random = np.random.default_rng(0)
    units, positions = 1_500, 8
    x = random.normal(size=(units, 3))
    truth = fold(x @ np.array([0.4, -0.2, 0.1]), positions)
    pair = np.sort([random.choice(positions, 2, replace=False) for _ in range(units)], axis=1)
    clicks = random.poisson(20 * np.take_along_axis(truth, pair, 1) * random.beta(1, 2, (units, 1)))
    rows = Interventions(
        unit=np.repeat(np.arange(units), 2),
        query=np.repeat(np.arange(units) % 300, 2),
        position=pair.ravel() + 1,
        exposure=np.full(2 * units, 20.0),
        clicks=clicks.ravel(),
        impressions=np.full(2 * units, 20),
        contexts={name: np.repeat(x[:, j], 2) for j, name in enumerate("abc")},
    )
    contexts = {name: x[:500, j] for j, name in enumerate("abc")}

    def error(curve: str) -> float:
        found = CPBM(curve=curve, intervals=None).fit(rows)
        assert curve != "auto" or found.propensities_.curve.name == "index"
        return float(np.abs(found.predict(contexts).propensity / truth[:500] - 1).mean())

    assert error("auto") < error("linear") / 2


@pytest.mark.parametrize("curve", ["power", "linear", "lowrank", "index", "mlp", "position", "recurrent"])
def test_every_curve_comes_near_the_truth(interventions: Interventions, curve: str) -> None:
    assert error(CPBM(curve=curve, penalty=1.0, intervals=None).fit(interventions)) < 0.1


def test_allpairs_with_the_papers_networks_comes_near(interventions: Interventions) -> None:
    model = CPBM(
        curve="mlp",
        objective="allpairs",
        relevance="mlp",
        width=4,
        penalty=1.0,
        starts=1,
        weighting="harmonic",
        intervals=None,
    ).fit(interventions)
    assert error(model) < 0.15


def test_the_papers_recipe_trains_one_layer_on_everything(interventions: Interventions) -> None:
    recipe = {"curve": "mlp", "width": 0, "objective": "allpairs", "relevance": "mlp", "penalty": 0.0}
    model = CPBM(**recipe, optimiser="adam", early_stopping=False, starts=1, intervals=None).fit(interventions)
    assert error(model) < 0.15
    assert set(model.propensities_.params) == {"v", "c"}
    assert "finished" in model.propensities_.info["status"]


def test_adam_with_early_stopping_comes_near(interventions: Interventions) -> None:
    model = CPBM(curve="mlp", penalty=0.1, optimiser="adam", intervals=None).fit(interventions)
    assert error(model) < 0.15
    assert "stopped early" in model.propensities_.info["status"] or "finished" in model.propensities_.info["status"]


def test_early_stopping_keeps_a_tenth_of_the_queries_aside_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[Any, Any]] = []

    def watched(self: Fit, start: Any, weights: Any, held_out: Any, *rest: Any, **options: Any) -> Solution:
        trained.append((weights, held_out))
        return Solution(start, np.zeros(len(start)), np.ones(len(start), dtype=int), (Status.finished,) * len(start))

    monkeypatch.setattr(Fit, "train", watched)
    settings: dict[str, Any] = {"curve": "mlp", "penalty": 0.1, "optimiser": "adam", "starts": 2, "intervals": None}
    data = simulated(0, units=400)
    for early_stopping in (True, False):
        CPBM(**settings, early_stopping=early_stopping).fit(data)
    (seen, aside), (everything, none) = trained
    assert none is None
    assert (everything == 1).all()
    assert np.array_equal(seen + aside, everything)
    assert set(np.unique(aside)) == {0.0, 1.0}
    assert aside.sum(axis=1) == pytest.approx([everything.shape[1] / 10] * 2, abs=1)


def test_error_falls_with_the_square_root_of_the_data() -> None:
    errors = [
        np.mean([error(CPBM(curve="linear", penalty=1.0, intervals=None).fit(simulated(s, n))) for s in range(4)])
        for n in (200, 3_200)
    ]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("intervals", ["bootstrap", "sandwich"])
def test_one_query_gives_no_error_bars(interventions: Interventions, intervals: Any) -> None:
    alone = replace(interventions, query=np.zeros_like(interventions.query))
    with pytest.warns(HarvestWarning, match="the clicks are of 1 query: there are none to give"):
        model = PBM(intervals=intervals).fit(alone)
    found = model.predict()
    assert np.isfinite(found.propensity).all()
    assert np.isnan(found.lower).all()


def test_pbm_is_between_the_contexts(interventions: Interventions) -> None:
    p = PBM(intervals="sandwich").fit(interventions).predict().propensity[0]
    assert p[0] == 1.0
    assert all(k ** -ETA["mobile"] < p[k - 1] < k ** -ETA["desktop"] for k in range(2, 6))


def test_bootstrap_and_sandwich_agree(interventions: Interventions) -> None:
    widths = []
    for intervals in ("bootstrap", "sandwich"):
        model = CPBM(curve="linear", penalty=1.0, intervals=intervals, replicates=300).fit(interventions)
        found = model.predict({"device": ["mobile"]})
        widths.append(np.log(found.upper / found.lower)[0, 1:])
    assert widths[0] == pytest.approx(widths[1], rel=0.2)
    assert (widths[0] != widths[1]).all()


@pytest.mark.parametrize(("penalty", "fine"), [(0.1, True), (1e4, False)])
def test_what_a_penalty_has_shrunk_is_not_supported_by_a_bootstrap_of_allpairs(
    interventions: Interventions, penalty: float, fine: bool
) -> None:
    options: dict[str, Any] = {"objective": "allpairs", "curve": "linear", "relevance": "constant"}
    model = CPBM(**options, penalty=penalty, intervals="bootstrap", replicates=20).fit(interventions)
    found = model.predict({"device": ["mobile", "desktop"]})
    assert found.supported[:, 0].all()
    assert found.supported[:, 1:].all() == fine
    assert found.supported[:, 1:].any() == fine


def test_shrinkage_of_allpairs_is_how_far_a_fit_without_penalty_is() -> None:
    log = simulated(0, 2_000)
    options: dict[str, Any] = {"objective": "allpairs", "curve": "linear", "relevance": "constant"}
    shrunk = CPBM(**options, penalty=10.0, intervals="bootstrap", replicates=100).fit(log).propensities_
    free = CPBM(**options, penalty=0.0, intervals=None).fit(log).propensities_
    asked = {"device": ["mobile", "desktop"]}
    apart = np.log(free.predict(asked).propensity / shrunk.predict(asked).propensity)[:, 1:]
    assert shrunk.encoder is not None
    sd = shrunk.log_sd(shrunk.encoder.encode(asked)[0])[:, 1:]
    share = (apart**2).sum(axis=0) / (sd**2).sum(axis=0)
    assert shrunk.info["shrunk"][1:] == pytest.approx(share, rel=0.5)


def test_same_seed_same_result(interventions: Interventions) -> None:
    first, second = (PBM(replicates=20, seed=3).fit(interventions).predict() for _ in range(2))
    assert np.array_equal(first.lower, second.lower)


def test_row_order_does_not_matter(interventions: Interventions) -> None:
    order = np.random.default_rng(0).permutation(len(interventions))
    shuffled = PBM(intervals=None).fit(interventions.take(order)).predict().propensity
    assert shuffled == pytest.approx(PBM(intervals=None).fit(interventions).predict().propensity, rel=1e-4)


def test_cut_positions_are_never_given_a_number(interventions: Interventions) -> None:
    """Nothing links positions 4-5 to 1-3 once units that stood on both sides are gone."""
    low = np.bincount(interventions.unit, interventions.position > 3)[interventions.unit]
    cut = interventions.take(low != 1)
    found = PBM(intervals="sandwich").fit(cut).predict()
    assert found.supported.tolist() == [[True] * 3 + [False] * 2]
    assert np.isnan(found.propensity[0, 3:]).all()
    assert np.isnan(found.lower[0, 3:]).all()
    with pytest.raises(NotIdentifiedError):
        PBM(anchor=9).fit(cut)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"curve": "spline"}, "no curve 'spline'"),
        ({"curve": ["power", "linear"]}, r"no curve \['power', 'linear'\]"),
        ({"objective": "likelihood"}, "no objective"),
        ({"curve": "linear", "penalty": 1.0, "intervals": "jackknife"}, "no intervals"),
        ({"curve": "linear", "penalty": 1.0, "optimiser": "sgd"}, "no optimiser"),
        ({"curve": "linear", "rank": 2, "penalty": 1.0}, "takes no rank"),
    ],
)
def test_unknown_names_are_refused(interventions: Interventions, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CPBM(**options).fit(interventions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"penalty": "strong"}, "penalty is 'strong': expected a number, 0 or more"),
        ({"penalty": -1}, "penalty is -1"),
        ({"penalty": np.nan}, "penalty is nan"),
        ({"seed": 1.5}, "seed is 1.5: expected a whole number, 0 or more"),
        ({"replicates": 0}, "replicates is 0"),
        ({"folds": 1}, "folds is 1"),
        ({"starts": True}, "starts is True"),
    ],
)
def test_numbers_out_of_range_are_refused(interventions: Interventions, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        CPBM(**options).fit(interventions)


@pytest.mark.parametrize("estimator", [PBM(seed=np.int64(0)), CPBM()])
def test_what_is_no_harvest_is_refused(estimator: Any) -> None:
    with pytest.raises(InputError, match="expected interventions, found a dict: make them with harvest"):
        estimator.fit({"query": ["a"]})


def test_a_cpbm_needs_context() -> None:
    with pytest.raises(InputError, match="needs context columns"):
        CPBM().fit(Interventions(**{**vars(simulated(0, 10)), "contexts": {}}))


def test_a_fit_that_does_not_converge_warns(interventions: Interventions, monkeypatch: pytest.MonkeyPatch) -> None:
    def halfway(self: Any, fit: Any, starts: Any, weights: Any, penalty: Any) -> Solution:
        return Solution(starts, np.zeros(len(starts)), np.ones(len(starts), dtype=int), (Status.out_of_iterations,))

    monkeypatch.setattr(CPBM, "_solve", halfway)
    with pytest.warns(ConvergenceWarning, match="allow more"):
        CPBM(curve="power", penalty=1.0, intervals=None).fit(interventions)


def test_a_saved_model_predicts_the_same(interventions: Interventions, tmp_path: Any) -> None:
    model = CPBM(curve="power", penalty=1.0, replicates=20).fit(interventions)
    model.propensities_.save(tmp_path / "model.safetensors")
    again = load_propensities(tmp_path / "model.safetensors").predict({"device": ["mobile"]})
    assert np.array_equal(again.propensity, model.predict({"device": ["mobile"]}).propensity)


def test_the_numeric_core_needs_no_engine() -> None:
    """What a bare machine runs: no Ibis, DuckDB, Arrow, pandas, scikit-learn, Typer."""
    code = (
        "import sys\n"
        "for name in ('ibis', 'duckdb', 'pyarrow', 'pandas', 'sklearn', 'typer', 'rich'): sys.modules[name] = None\n"
        "from clickharvest.estimation import estimators, selection, uncertainty\n"
        "from clickharvest import CPBM, Interventions\n"
        "from clickharvest.simulate import simulate_protocol\n"
        "print(CPBM)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_point_of_a_pooled_model_is_near_the_free_one_where_clicks_are_many(interventions: Interventions) -> None:
    dense = replace(interventions, clicks=100 * interventions.clicks, exposure=100 * interventions.exposure)
    for data, near in ((interventions, 0.05), (dense, 0.01)):
        pooled = PBM(intervals=None).fit(data).predict().propensity
        free = PBM(intervals="sandwich").fit(data).predict().propensity
        assert np.abs(np.log(pooled / free)).max() < near


@pytest.mark.parametrize("curve", ["constant", "linear"])
def test_clustered_intervals_are_exact(interventions: Interventions, curve: str) -> None:
    model = CPBM(curve=curve).fit(interventions).propensities_
    assert model.draws_kind == "clustered"
    assert model.draws is not None
    covariance = np.cov(model.draws.T)
    assert model.encoder is not None
    x = model.encoder.transform({"device": list(ETA)})
    found = model.predict_encoded(x)
    for i, row in enumerate(x):
        features = np.concatenate([row, [1.0]]) if curve == "linear" else np.ones(1)
        design = np.kron(features, np.eye(4))
        sd = np.sqrt(np.diag(design @ covariance @ design.T))
        assert np.log(found.upper[i, 1:] / found.propensity[i, 1:]) == pytest.approx(1.959964 * sd, rel=1e-4)
    together = model.predict_encoded(x, simultaneous=True)
    ratio = np.log(together.upper[:, 1:] / found.propensity[:, 1:]) / np.log(
        found.upper[:, 1:] / found.propensity[:, 1:]
    )
    assert np.ptp(ratio, axis=1) == pytest.approx(0, abs=1e-6)
    assert (ratio > 1.02).all()
    assert (ratio < 2.6 / 1.96).all()  # four independent positions would need 2.49


def test_a_pooled_model_tells_what_it_rests_on(interventions: Interventions) -> None:
    info = CPBM(curve="linear").fit(interventions).propensities_.info
    assert "penalty" not in info
    assert {name: 0 < tau < 2 for name, tau in info["pooled"].items()} == dict.fromkeys(info["pooled"], True)
    assert info["clustered"]["overdispersion"] >= 1
    assert len(info["clustered"]["effective_queries"]) == 5
    ridge = CPBM(curve="linear", penalty=1.0).fit(interventions).propensities_
    assert ridge.info["penalty"] == 1.0
    assert ridge.draws_kind == "clustered"
    free = CPBM(curve="linear", penalty=1.0, intervals=None).fit(interventions).propensities_
    for device in ETA:
        ratio = ridge.predict({"device": [device]}).propensity / free.predict({"device": [device]}).propensity
        assert ratio == pytest.approx(1, abs=2e-3)


def test_auto_takes_clustered_intervals_where_it_can(interventions: Interventions) -> None:
    for model in (PBM(), CPBM(curve="power", penalty=1.0), CPBM(curve="lowrank", penalty=1.0, intervals="clustered")):
        assert model.fit(interventions).propensities_.draws_kind == "clustered"
    assert PBM(objective="allpairs", replicates=4).fit(interventions).propensities_.draws_kind == "bootstrap"
    with pytest.raises(InputError, match="clustered intervals are for the objective clickshare"):
        PBM(objective="allpairs", intervals="clustered").fit(interventions)


def test_a_power_law_needs_no_context(interventions: Interventions) -> None:
    model = CPBM(curve="power").fit(replace(interventions, contexts={}))
    found = model.predict()
    steepness = -np.log(found.propensity[0, 1:]) / np.log(np.array(found.positions[1:]))
    assert np.ptp(steepness) == pytest.approx(0, abs=1e-9)
    assert min(ETA.values()) < steepness[0] < max(ETA.values())
    assert (found.lower[0, 1:] < found.propensity[0, 1:]).all()
    with pytest.raises(InputError, match="needs context columns"):
        CPBM(curve="linear").fit(replace(interventions, contexts={}))


def test_auto_gives_contexts_that_do_nothing_one_curve(interventions: Interventions) -> None:
    random = np.random.default_rng(0)
    device = random.permutation(interventions.contexts["device"][::2])
    noise = replace(interventions, contexts={"device": np.repeat(device, 2)})
    # The queries' own mix of devices is gone, and with it what made one curve wrong for each.
    found, plain = CPBM().fit(noise).predict({"device": list(ETA)}), PBM().fit(noise).predict().propensity
    assert found.propensity == pytest.approx(np.tile(plain, (2, 1)), rel=0.05)
    assert found.supported.all()
    assert ((found.lower <= plain) & (plain <= found.upper)).all()


def test_clicks_of_one_query_choose_no_curve(interventions: Interventions) -> None:
    alone = replace(interventions, query=np.zeros(len(interventions), dtype=np.int64))
    with pytest.raises(InputError, match="all clicks are of one query: choose the curve linear"):
        CPBM().fit(alone)
    with pytest.warns(HarvestWarning, match="none to give with fewer than 3"):
        assert CPBM(curve="linear").fit(alone).predict({"device": ["mobile"]}).supported.sum() > 0


@pytest.mark.parametrize("kind", ["context", "query"])
def test_some_rows_of_a_large_log_choose_and_all_are_fitted(
    interventions: Interventions, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = replace(interventions, unit_kind=kind)
    whole = CPBM().fit(log)
    monkeypatch.setattr("clickharvest.estimation.estimators.CHOOSING", 1_200)
    some = CPBM().fit(log)
    drawn = some.propensities_.info["chosen_on"]
    assert drawn == pytest.approx(1_200, rel=0.1)
    assert f"on {drawn:,} rows drawn at random" in str(some)
    assert some.propensities_.info["clicks"] == whole.propensities_.info["clicks"]
    assert some.propensities_.curve.name == whole.propensities_.curve.name
    assert "chosen_on" not in whole.propensities_.info
    ratio = some.predict({"device": list(ETA)}).propensity / whole.predict({"device": list(ETA)}).propensity
    assert ratio == pytest.approx(1, abs=0.03)
    assert error(some) < 0.1
