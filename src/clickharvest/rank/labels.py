"""Labels for other trainers: the relevance of every document that a log showed.

With E_qd = Σ p_k(x) over the pages that showed document d for query q, C_qd its clicks and n_q the pages of the query,

    relevance = C / E      policy_propensity = E / n

C is nearly Poisson with mean E · relevance, so the interval is Garwood's (1936), which is conservative. It takes the
propensities as known.

Affine clicks have E = Σ a_k and the *shift* B = Σ b_k: relevance = (C − B) / E, whose interval is that of C, less B,
over E. It is unbiased, and by chance below 0: for trainers that refuse such labels, set it to 0, or add a constant to
all documents of a query.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincinv

from clickharvest.errors import HarvestWarning, InputError
from clickharvest.rank.counting import count_documents, document_cells, pages_of_arms
from clickharvest.rank.features import Array
from clickharvest.words import count

if TYPE_CHECKING:
    import pyarrow as pa

    from clickharvest.click_models.affine import AnyAffine
    from clickharvest.logs.click_log import ClickLog
    from clickharvest.model.propensities import Propensities

MATTERS = 0.01
"""Least share of clicks without a propensity of their own that causes a warning."""


def relevance_labels(
    log: ClickLog, propensities: Propensities | AnyAffine | None = None, *, level: float = 0.95
) -> pa.Table:
    """Return one row for every query and document that the log showed, sorted by both.

    Columns `query, doc, clicks, exposure, pages, policy_propensity, relevance, lower, upper`: a listwise trainer takes
    `relevance` as the label, a likelihood `clicks` with the offset log `exposure`, an inverse-propensity loss
    `clicks / policy_propensity`. Of affine clicks also `shift`, after `exposure`: the loss takes
    `(clicks - shift) / policy_propensity`, and no likelihood of counts fits. Documents that were shown only where the
    model has no estimate are left out.

    Args:
        log: the log; clicks are counted inside its engine.
        propensities: the model, of examination or affine; None where the log has its columns, as `weigh` writes them.
        level: coverage of the interval from `lower` to `upper`.

    Warns:
        HarvestWarning: documents are left out, or clicks have no propensity of their own.

    Example:
        >>> import pyarrow as pa
        >>> from clickharvest.logs.reading import read_log
        >>> shown = {"query": ["q"] * 4, "doc": ["a", "b", "a", "b"], "position": [1, 2, 1, 2], "click": [1, 1, 0, 0]}
        >>> table = relevance_labels(read_log(pa.table(shown | {"propensity": [1.0, 0.5, 1.0, 0.5]})))
        >>> table.select(["doc", "clicks", "exposure", "relevance"]).to_pydict()
        {'doc': ['a', 'b'], 'clicks': [1.0, 1.0], 'exposure': [2.0, 1.0], 'relevance': [0.5, 1.0]}
    """
    import pyarrow as pa

    if not 0 < level < 1:
        raise InputError(f"level is {level}: expected a number between 0 and 1")
    expression, support_known = document_cells(log, propensities)
    cells = log.engine.fetch(expression, task="Counting clicks")
    counts = count_documents(cells).drop_columns(["unsupported"])
    _warn_of_unsupported(cells, support_known)
    if without := cells.group_by(["query", "doc"]).aggregate([]).num_rows - counts.num_rows:
        sentence = f"{count(without, 'document')} shown only where the model has no estimate: left out, without a label"
        warnings.warn(sentence, HarvestWarning, stacklevel=2)
    pages = pages_of_arms(log, cells).group_by("query").aggregate([("pages", "sum")])
    table = counts.join(pages.rename_columns(["query", "pages"]), ["query"])
    table = table.sort_by([("query", "ascending"), ("doc", "ascending")])
    clicks, exposure, n = (np.asarray(table[name]) for name in ("clicks", "exposure", "pages"))
    lower, upper = poisson_interval(clicks, level)
    shift = np.asarray(table["shift"]) if "shift" in table.column_names else 0.0
    for name, values in {
        "policy_propensity": exposure / n,
        "relevance": (clicks - shift) / exposure,
        "lower": (lower - shift) / exposure,
        "upper": (upper - shift) / exposure,
    }.items():
        table = table.append_column(name, pa.array(values))
    return table


def _warn_of_unsupported(cells: pa.Table, support_known: bool) -> None:
    """Warn if many clicks have no propensity of their own; affine clicks without one are left out."""
    clicks, unsupported = (float(np.asarray(cells[name]).sum()) for name in ("clicks", "unsupported"))
    left_out = "shift" in cells.column_names
    share = unsupported / ((clicks + unsupported * left_out) or 1.0)
    if support_known and unsupported and (left_out or share >= MATTERS):
        use = "they are left out" if left_out else "their exposure is that of the last position above that can be told"
        sentence = f"{100 * share:.2g} % of the clicks are where propensities cannot be told: {use}"
        warnings.warn(sentence, HarvestWarning, stacklevel=3)


def poisson_interval(counts: ArrayLike, level: float = 0.95) -> tuple[Array, Array]:
    """Return Garwood's interval of the mean of a Poisson variable: counts [n] → lower [n], upper [n].

    Example:
        >>> lower, upper = poisson_interval([0, 10])
        >>> lower.round(2).tolist(), upper.round(2).tolist()
        ([0.0, 4.8], [3.69, 18.39])
    """
    c = np.asarray(counts, np.float64)
    tail = (1 - level) / 2
    lower = np.where(c > 0, gammaincinv(np.maximum(c, 1e-9), tail), 0.0)
    return lower, np.asarray(gammaincinv(c + 1, 1 - tail), np.float64)
