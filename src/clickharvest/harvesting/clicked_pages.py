"""Logs from which the pages without a click are missing, and the estimators that cannot bear it."""

from __future__ import annotations

import warnings
from typing import Protocol

from clickharvest.errors import HarvestWarning


class MayLackPages(Protocol):
    """A click log, or its interventions."""

    @property
    def only_clicked_pages(self) -> bool:
        """Whether the pages without a click seem to be missing."""
        ...


def warn_of_clicked_pages(source: MayLackPages, estimator: str, *, stacklevel: int = 3) -> None:
    """Warn if an estimator that compares clicks with what was shown is given a log of clicked pages alone.

    What was shown without success is left only where another click on the page has saved it, so click rates come out
    too high, and most of all where pages are rarely clicked. ClickShare compares the clicks of a unit with each other.
    It suffers as well, but less: a display where the unit was likely to be clicked is more likely to be left, which
    flattens its curve a little. Exposures by design count no displays, and with them it suffers nothing.
    """
    if source.only_clicked_pages:
        warnings.warn(
            f"{estimator} compares clicks with what was shown, but the log's pages without a click seem to be left "
            "out, so the result is off. Use ClickShare, or log all pages.",
            HarvestWarning,
            stacklevel=stacklevel,
        )
