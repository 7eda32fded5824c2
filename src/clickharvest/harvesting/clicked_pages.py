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

    Of what was shown without success only that is left which another click on the page has saved, so click rates come
    out too high, most of all at positions that are rarely clicked together with others. ClickShare compares the clicks
    of a unit with each other and needs no such rate.
    """
    if source.only_clicked_pages:
        warnings.warn(
            f"{estimator} compares clicks with what was shown, but the log's pages without a click seem to be left "
            "out, so the result is off. Use ClickShare, or log all pages.",
            HarvestWarning,
            stacklevel=stacklevel,
        )
