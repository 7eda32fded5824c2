"""How many threads linear algebra gets."""

from __future__ import annotations

import os

LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""What NumPy's and SciPy's libraries ask for, as they are loaded."""


def keep_to_one_thread() -> None:
    """Let linear algebra run on one thread, unless the user says otherwise; to be called before NumPy is imported.

    The matrices of a fit are small. More threads gain nothing on them, but wait for each other by spinning: on two busy
    cores a fit of 100,000 rows took two to five times as much CPU time with two.
    """
    if not any(name in os.environ for name in LIMITS):
        os.environ |= dict.fromkeys(LIMITS[:2], "1")
