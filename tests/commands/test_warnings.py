"""Warnings on the terminal: all of the library's own, once each, and none of other libraries."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from clickharvest import errors
from clickharvest.errors import ClickharvestWarning, ConvergenceWarning, HarvestWarning
from clickharvest.estimation.fitting import Estimator
from clickharvest.estimation.optimise import Status
from clickharvest.model import Propensities, make_curve
from clickharvest.simulate import simulate_ab_log
from command_line import Command

MODEL = Propensities(make_curve("constant", (1, 2), anchor=1, n_features=0), {"b": np.zeros(1)}, None, (1, 2))
OWN = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Warning)]


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("category", OWN)
def test_every_warning_of_the_library_is_one_line(
    category: type[Warning], run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: object) -> Propensities:
        warnings.warn("look here", category, stacklevel=2)
        warnings.warn("look here", category, stacklevel=1)
        return MODEL

    monkeypatch.setattr("clickharvest.click_models.base.load_model", warn)
    code, out, err = run("show model.safetensors")
    assert (code, err) == (0, "Warning: look here\n")
    assert out.startswith(str(MODEL))
    assert run("show model.safetensors")[2] == "Warning: look here\n"


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("category", [UserWarning, DeprecationWarning, RuntimeWarning, FutureWarning])
def test_warnings_of_other_libraries_stay_off_the_terminal_alone(
    category: type[Warning], run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: object) -> Propensities:
        warnings.warn("for programmers", category, stacklevel=2)
        return MODEL

    monkeypatch.setattr("clickharvest.click_models.base.load_model", warn)
    code, _, err = run("show model.safetensors")
    assert (code, err) == (0, "")
    with pytest.warns(category, match="for programmers"):
        warn()


@pytest.mark.filterwarnings("always")
def test_a_fit_that_does_not_converge_says_so(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    pq.write_table(simulate_ab_log(pages=2_000, queries=20)[0], "log.parquet")
    whole = Estimator._fit_choice
    monkeypatch.setattr(Estimator, "_fit_choice", lambda *given: (whole(*given)[0], Status.out_of_iterations))
    code, _, err = run("fit log.parquet --intervals bootstrap --bootstrap 2 -o model.safetensors")
    assert code == 0
    assert err == f"Warning: PBM: the fit {Status.out_of_iterations}\n"
    assert Path("model.safetensors").exists()


def test_own_warnings_have_one_base() -> None:
    assert {HarvestWarning, ConvergenceWarning} < set(OWN)
    assert all(issubclass(category, ClickharvestWarning) for category in OWN)
