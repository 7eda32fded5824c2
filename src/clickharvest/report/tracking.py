"""Experiment tracking: log a fitted model, its metrics and its report as a run of MLflow."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from clickharvest.checks import budget_of
from clickharvest.errors import InputError
from clickharvest.extras import require
from clickharvest.model.propensities import Propensities
from clickharvest.words import first_line

LARGEST = 250
"""Longest parameter, in characters, that every MLflow server accepts."""


def log_to_mlflow(propensities: Propensities, model: Path) -> str:
    """Log a model as one run of MLflow: parameters, metrics, the budget, the model file and its report.

    The environment variables `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME` name the server and the experiment;
    inside an active run the new run is nested.

    Args:
        propensities: the model.
        model: the file it was saved to.

    Returns:
        The id of the run.

    Raises:
        InputError: the model is not one of examination, or MLflow is not installed, or refuses.
    """
    from clickharvest.report.page import write_report

    if not isinstance(propensities, Propensities):
        raise InputError(f"only models of examination can be tracked; the model is saved in {model}")
    mlflow = require("mlflow", "mlflow", "logging to MLflow")
    try:
        with mlflow.start_run(nested=mlflow.active_run() is not None) as run:
            mlflow.log_params(run_params(propensities))
            mlflow.log_metrics(run_metrics(propensities))
            mlflow.set_tags(run_tags(propensities))
            mlflow.log_artifact(str(model))
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder, "report.html")
                write_report(page, propensities, name=model.name)
                mlflow.log_artifact(str(page))
            return str(run.info.run_id)
    except mlflow.exceptions.MlflowException as error:
        raise InputError(f"MLflow refused the run, while the model is saved in {model}: {first_line(error)}") from error


def run_params(propensities: Propensities) -> dict[str, Any]:
    """Return the settings of a fit, given or chosen.

    Example:
        >>> import numpy as np
        >>> from clickharvest.model.curves import make_curve
        >>> curve = make_curve("constant", (1, 2), 1, 0)
        >>> run_params(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), info={"seed": 3}))
        {'anchor': 1, 'curve': 'constant', 'context': '', 'seed': 3}
    """
    info = propensities.info
    chosen = {name: info[name] for name in ("estimator", "objective", "penalty", "seed", "data") if name in info}
    shape = {"curve": propensities.curve.name} | propensities.curve.shape
    columns = () if propensities.encoder is None else propensities.encoder.columns
    return {"anchor": propensities.curve.anchor, **shape, "context": ", ".join(columns)[:LARGEST], **chosen}


def run_metrics(propensities: Propensities) -> dict[str, float]:
    """Return the metrics of a fit: the log likelihood, the size of its data, and the error budget.

    `budget_off` is how far off it can be at the worst position, as a fraction, `budget_<source>` because of each
    source. A number without a bound is left out.

    Example:
        >>> import numpy as np
        >>> from clickharvest.checks import Budget
        >>> from clickharvest.model.curves import make_curve
        >>> budget = Budget((2,), (0.25,), (0.1,), {"clicks above": (0.2,)}, (0.2,), {}).to_dict()
        >>> curve = make_curve("constant", (1, 2), 1, 0)
        >>> run_metrics(Propensities(curve, {"b": np.log([0.5])}, None, (1, 2), info={"clicks": 9, "budget": budget}))
        {'clicks': 9.0, 'budget_off': 0.25, 'budget_clicks_above': 0.2}
    """
    info, budget = propensities.info, budget_of(propensities)
    sizes = {name: float(info[name]) for name in ("log_likelihood", "units", "clicks", "queries") if name in info}
    if budget is None:
        return sizes
    terms = {"off": budget.off} | {_metric_name(name): size for name, size in budget.sizes().items()}
    return sizes | {f"budget_{name}": float(size) for name, size in terms.items() if math.isfinite(size)}


def run_tags(propensities: Propensities) -> dict[str, str]:
    """Return the verdict of the budget: usable, with care or cannot tell; nothing without checks."""
    budget = budget_of(propensities)
    return {} if budget is None else {"budget": budget.word}


def _metric_name(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
