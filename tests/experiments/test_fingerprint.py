"""Fingerprints of code: what changes them, what does not, and what they are made of."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from clickharvest.experiments import load_experiments
from clickharvest.experiments.runner.fingerprint import PACKAGE, ROOT, fingerprint, reached
from clickharvest.experiments.runner.registry import FAMILIES

CODE = """
from clickharvest.simulate import synthetic_corpus
import numpy as np

RATE = 0.5

def half(x):
    return RATE * np.asarray(x)
"""


Print = Callable[[str], str]


@pytest.fixture
def print_of(tmp_path: Path) -> Print:
    count = iter(range(100))

    def make(text: str) -> str:
        path = tmp_path / f"module{next(count)}.py"
        path.write_text(dedent(text))
        return fingerprint(path)

    return make


SAME = {
    "a comment": CODE.replace("RATE = 0.5", "RATE = 0.50  # a half"),
    "a docstring": CODE.replace("    return", '    """Halve."""\n    return'),
    "an attribute's docstring": CODE.replace("RATE = 0.5", 'RATE = 0.5\n"""A half."""'),
    "types": CODE.replace("def half(x):", "def half(x: list[float]) -> object:"),
    "the order of imports": "import numpy as np\nfrom clickharvest.simulate import synthetic_corpus"
    + CODE.partition("as np")[2],
    "an import inside": CODE.replace("import numpy as np\n", "").replace(
        "    return", "    import numpy as np\n    return"
    ),
    "where a name of the package comes from": CODE.replace("clickharvest.simulate", "clickharvest.simulate.corpus"),
    "what type checkers read": CODE
    + "\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import clickharvest.rank\n",
}
OTHER = {
    "a number": CODE.replace("0.5", "0.6"),
    "an operation": CODE.replace("RATE * np", "RATE + np"),
    "another function by the same name": CODE.replace("import numpy as np", "import scipy as np"),
    "another name": CODE.replace("import synthetic_corpus", "import read_letor as synthetic_corpus"),
    "a decorator": CODE.replace("def half", "@np.vectorize\ndef half"),
    "a default": CODE.replace("half(x)", "half(x=1)"),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_change_numbers_does_not_change_it(name: str, print_of: Print) -> None:
    one = CODE + ("\nfrom typing import TYPE_CHECKING\n" if "type checkers" in name else "")
    assert print_of(SAME[name]) == print_of(one)


@pytest.mark.parametrize("name", OTHER)
def test_what_may_change_numbers_changes_it(name: str, print_of: Print) -> None:
    assert print_of(OTHER[name]) != print_of(CODE)


def test_it_is_the_same_on_every_machine_and_python(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text("async def f(x, /, y=None, *, z=1):\n    return {**x, 'a': [f'{y!r:>{z}}', x[1:, ...]]}\n")
    assert fingerprint(path) == "24b813f58e08cd73"


@pytest.fixture(scope="module")
def files() -> dict[str, set[str]]:
    """The modules that the fingerprint of each family is made of."""
    load_experiments()
    return {
        name: {
            path.relative_to(ROOT).with_suffix("").as_posix()
            for path in reached(Path(str(sys.modules[one.measure.__module__].__file__)), engine=one.engine)
        }
        for name, one in FAMILIES.items()
        if one.measure.__module__.startswith(PACKAGE)
    }


class TestReach:
    def test_every_family_of_the_experiments_is_there(self, files: dict[str, set[str]]) -> None:
        others = {"arxiv_curves", "click_models", "learning", "table_max", "table_size", "yandex"}
        assert set(files) == {"semi_synthetic", *others}

    def test_estimates_depend_on_all_of_estimation_that_makes_them(self, files: dict[str, set[str]]) -> None:
        needed = {f"estimation/{name}" for name in ("estimators", "loss", "optimise", "sample", "selection")}
        needed |= {f"estimation/objectives/{name}" for name in ("base", "clickshare", "allpairs")}
        needed |= {
            f"model/curves/{name}" for name in ("base", "constant", "power", "linear", "lowrank", "index", "mlp")
        }
        needed |= {"model/contexts", "model/prediction", "harvesting/interventions"}
        for name in ("semi_synthetic", "learning", "yandex"):
            assert needed <= files[name]
        assert {"simulate/protocol", "simulate/rankers", "baselines/expectation"} <= files["semi_synthetic"]
        assert {"click_models/choosing", "click_models/affine/estimating", "checks/clicks_above"} <= files[
            "click_models"
        ]
        assert {"rank/svm/newton", "rank/learners", "rank/boosting"} <= files["learning"]
        assert {"logs/reading", "harvesting/collecting"} <= files["yandex"]

    def test_what_makes_no_numbers_is_left_out(self, files: dict[str, set[str]]) -> None:
        for found in files.values():
            assert not {name for name in found if name.startswith(("commands/", "report/", "experiments/runner/"))}
            assert not found & {"errors", "words", "progress", "files"}
        assert not {name for name in files["semi_synthetic"] if name.startswith(("logs/", "rank/"))}
        assert not {name for name in files["table_size"] if name.startswith(("estimation/", "model/"))}

    def test_imports_of_the_package_are_absolute(self) -> None:
        """Others would not be followed."""
        trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
        relative = [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for path, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level
        ]
        assert relative == []
