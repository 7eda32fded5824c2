"""Pages in random order: results that were shown once each reveal examination together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from clickharvest import PBM, Swap, harvest, read_log
from clickharvest.checks.diagnosing import diagnose
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.logs import ClickLog

pytestmark = pytest.mark.usefixtures("one_duckdb")

PAGES, WIDE, POWER = 4_000, 4, 0.8


def a_log(**options: object) -> ClickLog:
    """Every result is new; one page in two is in random order, the others are sorted by relevance."""
    random = np.random.default_rng(0)
    relevance = random.random((PAGES, WIDE))
    shuffled = np.arange(PAGES) % 2 == 0
    relevance[~shuffled] = -np.sort(-relevance[~shuffled], axis=1)
    clicked = random.random(relevance.shape) < relevance * np.arange(1.0, WIDE + 1) ** -POWER
    rows = {
        "page": np.arange(PAGES),
        "query": np.arange(PAGES) % 50,
        "order": np.where(shuffled, "random", "best"),
    }
    columns = {name: np.repeat(column, WIDE) for name, column in rows.items()}
    columns |= {"doc": np.arange(PAGES * WIDE), "position": np.tile(np.arange(1, WIDE + 1), PAGES)}
    return read_log(pa.table(columns | {"click": clicked.ravel().astype(int)}), **options)  # type: ignore[arg-type]


def test_random_pages_are_a_design() -> None:
    with pytest.raises(NotIdentifiedError):
        harvest(a_log())
    log = a_log(random={"order": "random"})
    assert diagnose(log).identified
    found = PBM().fit(harvest(log)).propensities_.predict()
    truth = np.arange(1.0, WIDE + 1) ** -POWER
    assert (found.lower[0] <= truth).all()
    assert (truth <= found.upper[0]).all()
    assert np.abs(found.propensity[0] / truth - 1).max() < 0.15
    assert log.table.doc.nunique().execute() == PAGES * WIDE  # what is not harvested sees the results as they are


def test_a_value_that_no_row_has_is_told() -> None:
    with pytest.raises(InputError, match=r"--random order=shuffled: no row has this value; found best \(8,000 rows\)"):
        a_log(random={"order": "shuffled"})


def test_there_is_one_design() -> None:
    with pytest.raises(InputError, match="pages in random order are a design of their own"):
        harvest(a_log(random={"order": "random"}), design=Swap.uniform(2))
