"""Ordinary click logs in, examination propensities out.

    logs ──► harvest ──► diagnose ──► fit ──► propensities

1. `read_log` (or `read_ubi`) opens a click log where it lies and checks it.
2. `diagnose` tells whether natural variation in it reveals examination, and tests the assumptions.
3. `harvest` collects the interventions: documents seen at several positions.
4. `PBM` and `CPBM` estimate examination from them, without or with context, with error bars.
5. `Propensities` is the result: it scores contexts, is saved to a file, and needs NumPy only.

>>> from clickharvest import diagnose, harvest, read_log
>>> from clickharvest.simulate import simulate_ab_log
>>> log = read_log(simulate_ab_log(pages=2000)[0], context=["device"])
>>> diagnose(log).identified
True
>>> print(harvest(log))
Interventions: 1,627 units, 3,638 rows, 2,630 clicks, positions 1-10, realised exposures, context device

Names are imported when first used, so that the parts which need no engine also run where none is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from clickharvest.contexts import ContextEncoder as ContextEncoder
    from clickharvest.designs import Rankings as Rankings
    from clickharvest.designs import Swap as Swap
    from clickharvest.diagnosis import Diagnosis as Diagnosis
    from clickharvest.diagnosis import diagnose as diagnose
    from clickharvest.engines import DuckDBEngine as DuckDBEngine
    from clickharvest.engines import SparkEngine as SparkEngine
    from clickharvest.estimators import CPBM as CPBM
    from clickharvest.estimators import PBM as PBM
    from clickharvest.harvesting import harvest as harvest
    from clickharvest.harvesting import harvest_to_parquet as harvest_to_parquet
    from clickharvest.interventions import Interventions as Interventions
    from clickharvest.interventions import read_interventions as read_interventions
    from clickharvest.logs import ClickLog as ClickLog
    from clickharvest.logs import read_log as read_log
    from clickharvest.propensities import Propensities as Propensities
    from clickharvest.propensities import load_propensities as load_propensities
    from clickharvest.report.charts import plot_curves as plot_curves
    from clickharvest.report.charts import plot_importance as plot_importance
    from clickharvest.report.charts import plot_overlap as plot_overlap
    from clickharvest.ubi import read_ubi as read_ubi
    from clickharvest.weights import Weights as Weights
    from clickharvest.weights import weigh as weigh
    from clickharvest.weights import weigh_to_parquet as weigh_to_parquet

_HOMES = {
    "DuckDBEngine": "engines",
    "SparkEngine": "engines",
    "ClickLog": "logs",
    "read_log": "logs",
    "read_ubi": "ubi",
    "ContextEncoder": "contexts",
    "Rankings": "designs",
    "Swap": "designs",
    "Interventions": "interventions",
    "read_interventions": "interventions",
    "harvest": "harvesting",
    "harvest_to_parquet": "harvesting",
    "Diagnosis": "diagnosis",
    "diagnose": "diagnosis",
    "PBM": "estimators",
    "CPBM": "estimators",
    "Propensities": "propensities",
    "load_propensities": "propensities",
    "Weights": "weights",
    "weigh": "weights",
    "weigh_to_parquet": "weights",
    "plot_curves": "report.charts",
    "plot_importance": "report.charts",
    "plot_overlap": "report.charts",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clickharvest' has no attribute {name!r}")
    return getattr(import_module(f"clickharvest.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
