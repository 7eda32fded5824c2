"""What the README shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clickharvest

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
    assert example is not None
    exec(compile(example[1], "README.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out == example[2]


def test_files_the_readme_points_at_exist() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (Path(__file__).parents[1] / target).exists()


@pytest.mark.parametrize("name", clickharvest.__all__)
def test_public_names_are_there_and_documented(name: str) -> None:
    assert getattr(clickharvest, name).__doc__
    assert name in dir(clickharvest)


def test_unknown_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        clickharvest.nothing  # noqa: B018
