"""Running the command line in this process, as `clickharvest …` would."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from clickharvest.commands import app as cli

Command = Callable[[str], tuple[int, str, str]]
"""What the fixture `run` gives: a command line to its exit code, output and error output."""


def run(*arguments: object) -> int:
    """Run a command and return its exit code; what it prints is pytest's to capture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["clickharvest", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code
