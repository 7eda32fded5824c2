"""scikit-learn's manners, tried with scikit-learn itself on every estimator and ranker."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as TheirNotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr, get_tags
from sklearn.utils.validation import check_is_fitted

from clickharvest import CPBM, PBM, Interventions
from clickharvest.errors import ClickharvestError, InputError, NotFittedError, NotIdentifiedError
from clickharvest.parameters import Parameterised
from clickharvest.rank import PropensitySVMRank, PropensitySVMRankCV, SVMRank, ranking_data

KINDS = {"device": "categorical"}
CLASSES: tuple[type[Parameterised], ...] = (PBM, CPBM, PropensitySVMRank, PropensitySVMRankCV, SVMRank)
UNFITTED: list[Any] = [
    PBM(seed=7),
    CPBM(curve="linear", penalty=3.0, kinds=KINDS),
    PropensitySVMRank(C=0.3),
    PropensitySVMRankCV(costs=np.array([0.1, 1.0]), clips=[0.1]),
    SVMRank(C=0.3),
]
SENTINEL = object()


def interventions() -> Interventions:
    random = np.random.default_rng(0)
    n = 60
    return Interventions(
        unit=np.repeat(np.arange(n), 2),
        query=np.repeat(np.arange(n), 2),
        position=np.tile([1, 2], n),
        exposure=np.ones(2 * n),
        clicks=random.integers(3, size=2 * n),
        impressions=np.full(2 * n, 5),
        contexts={"device": np.repeat(random.choice(["phone", "desk"], n), 2).astype(object)},
    )


def fitted(cls: type[Parameterised]) -> Any:
    if cls in (PBM, CPBM):
        quick: dict[str, Any] = {"curve": "linear", "penalty": 1.0} if cls is CPBM else {}
        model = cls(intervals=None, **quick)  # type: ignore[call-arg]
        data: tuple[Any, ...] = (interventions(),)
    elif cls is SVMRank:
        model, data = cls(), ([[1.0], [0.0]], [2, 0], [0, 2])
    else:
        options = {"costs": [1.0], "clips": [0.1]} if cls is PropensitySVMRankCV else {}
        model, data = cls(**options), (ranking_data([[1.0, 0.0], [0.0, 1.0]], [0, 2], clicked=[0, 0, 1]),)
    assert model.fit(*data) is model  # type: ignore[attr-defined]
    return model


@pytest.mark.parametrize("cls", CLASSES)
def test_a_constructor_keeps_what_it_is_given_unchecked(cls: type[Parameterised]) -> None:
    given = {name: object() for name in cls().get_params()}
    made = cls(**given)
    assert all(getattr(made, name) is value for name, value in given.items())
    assert vars(made) == given


@pytest.mark.parametrize("model", UNFITTED, ids=repr)
def test_clones_are_equal_and_unfitted(model: Any) -> None:
    copied = clone(model)
    assert copied is not model
    assert repr(copied) == repr(model)
    assert copied.get_params().keys() == model.get_params().keys()
    assert copied.get_params(deep=False).keys() == model.get_params().keys()


@pytest.mark.parametrize("cls", CLASSES)
def test_a_clone_of_a_fitted_model_is_unfitted(cls: type[Parameterised]) -> None:
    model = fitted(cls)
    check_is_fitted(model)
    with pytest.raises(TheirNotFittedError):
        check_is_fitted(clone(model))
    for whole in (copy.copy(model), copy.deepcopy(model)):
        check_is_fitted(whole)


@pytest.mark.parametrize("model", UNFITTED, ids=repr)
def test_before_fit_there_is_one_clear_error(model: Any) -> None:
    name, learned = type(model).__name__, "propensities_" if isinstance(model, PBM | CPBM) else "coef_"
    for asked in (model.predict, lambda x: getattr(model, learned)):
        with pytest.raises(
            NotFittedError, match=f"^this {name} is not fitted yet, so it has no {learned}: call fit"
        ) as e:
            asked({"device": ["phone"]})
        for expected in (ClickharvestError, InputError, ValueError, AttributeError):
            assert isinstance(e.value, expected)
        assert e.value.exit_code == 2
    with pytest.raises(TheirNotFittedError, match=name):
        check_is_fitted(model)
    assert not model.__sklearn_is_fitted__()
    assert not hasattr(model, learned)


@pytest.mark.parametrize("cls", CLASSES)
def test_what_was_learned_ends_in_an_underscore(cls: type[Parameterised]) -> None:
    model = fitted(cls)
    learned = vars(model).keys() - model.get_params().keys()
    assert learned
    assert all(name.endswith("_") for name in learned)
    with pytest.raises(AttributeError, match="no attribute 'propensitis_'") as raised:
        _ = model.propensitis_
    assert not isinstance(raised.value, NotFittedError)
    with pytest.raises(AttributeError, match="no attribute 'curves'"):
        _ = model.curves


def test_a_fit_that_fails_leaves_nothing_learned() -> None:
    alone = ranking_data([[1.0]], [0, 1], clicked=[0])
    model = PropensitySVMRankCV(costs=[1.0], clips=[0.1])
    with pytest.raises(NotIdentifiedError):
        model.fit(alone)
    with pytest.raises(TheirNotFittedError):
        check_is_fitted(model)


@pytest.mark.parametrize("model", UNFITTED, ids=repr)
def test_tags_say_what_fit_takes(model: Any) -> None:
    tags = get_tags(model)
    of_rows = isinstance(model, SVMRank)
    assert tags.requires_fit
    assert tags.estimator_type is None
    assert (tags.target_tags.required, tags.input_tags.two_d_array, tags.input_tags.sparse) == (of_rows,) * 3


@pytest.mark.parametrize("model", UNFITTED, ids=repr)
def test_unknown_parameters_are_refused_and_nothing_is_set(model: Any) -> None:
    own = clone(model)
    before = repr(own)
    first = next(iter(own.get_params()))
    for wrong in ("depth", f"{first}__depth", "coef_"):
        with pytest.raises(InputError, match=f"{type(own).__name__} has no parameter '{wrong}': expected .*{first}"):
            own.set_params(**{first: SENTINEL, wrong: 2})
    assert repr(own) == before
    assert own.set_params() is own
    assert own.set_params(**{first: SENTINEL}) is own
    assert getattr(own, first) is SENTINEL


def test_parameter_grids_go_by_clone_and_set_params() -> None:
    grid = ParameterGrid({"curve": ["power", "linear"], "penalty": [1.0, 2.0]})
    made = [clone(CPBM(intervals=None)).set_params(**params) for params in grid]
    assert [repr(model) for model in made][:2] == [
        "CPBM(curve='power', penalty=1.0, intervals=None)",
        "CPBM(curve='power', penalty=2.0, intervals=None)",
    ]


def test_one_may_be_the_last_step_of_a_pipeline() -> None:
    steps = make_pipeline(PBM(intervals=None)).set_params(pbm__seed=4).fit(interventions())
    alone = PBM(intervals=None, seed=4).fit(interventions())
    assert np.array_equal(steps.predict(None).propensity, alone.predict().propensity)


@pytest.mark.parametrize("cls", CLASSES)
def test_they_print_as_they_are_typed(cls: type[Parameterised]) -> None:
    assert repr(cls()) == f"{cls.__name__}()"
    for model in UNFITTED:
        if type(model) is cls and cls is not PropensitySVMRankCV:
            assert repr(eval(repr(model), {cls.__name__: cls})) == repr(model)  # noqa: S307
    assert repr(CPBM(curve="linear", penalty=3.0, seed=7)) == "CPBM(curve='linear', penalty=3.0, seed=7)"
    assert repr(PropensitySVMRankCV(costs=np.array([0.1, 1.0]))) == "PropensitySVMRankCV(costs=array([0.1, 1. ]))"
    assert "not fitted yet" in str(CPBM())


@pytest.mark.parametrize("display", ["text", "diagram"])
@pytest.mark.parametrize("model", UNFITTED, ids=repr)
def test_they_can_be_displayed(model: Any, display: str) -> None:
    with sklearn.config_context(display=display, print_changed_only=False):
        assert repr(model) == repr(clone(model))
        assert type(model).__name__ in estimator_html_repr(model)


def test_the_manners_need_no_scikit_learn() -> None:
    code = (
        "import sys\n"
        "sys.modules['sklearn'] = None\n"
        "from clickharvest import CPBM\n"
        "from clickharvest.errors import NotFittedError\n"
        "model = CPBM().set_params(seed=3)\n"
        "try:\n    model.predict()\n"
        "except NotFittedError as error:\n    print(repr(model), model.__sklearn_is_fitted__(), error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith("CPBM(seed=3) False this CPBM is not fitted yet"), done.stderr
