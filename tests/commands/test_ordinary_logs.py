"""Sound logs and valid options that once ended in a traceback."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Command


@pytest.fixture
def popular() -> str:
    """A log of 12,000 rows in the current folder, all but a few of one query, and a number that no two pages share."""
    random, pages, k = np.random.default_rng(0), 3_000, 4
    query = np.where(random.random(pages) < 0.95, 0, random.integers(1, 30, pages))
    order = random.permuted(np.tile(np.arange(k), (pages, 1)), axis=1)
    age = random.normal(size=pages)
    examined = np.arange(1, k + 1) ** -np.maximum(1 + 0.3 * age[:, None], 0)
    clicks = random.random((pages, k)) < examined * random.beta(2, 2, (30, k))[query[:, None], order]
    columns = {
        "query": np.repeat(query, k),
        "doc": order.ravel(),
        "position": np.tile(np.arange(1, k + 1), pages),
        "click": clicks.ravel().astype(np.int8),
        "age": np.repeat(age, k),
    }
    pq.write_table(pa.table(columns), "popular.parquet")
    return "popular.parquet"


def test_contexts_may_vary_inside_a_unit_of_many_pages(run: Command, popular: str) -> None:
    """One unit has thousands of cells; a model of it is fitted, read back and reported on."""
    by_query = "--context age --unit query"
    for model in ("linear", "power"):
        assert run(f"fit {popular} {by_query} --curve {model} -o {model}.safetensors")[0] == 0
        assert run(f"report {model}.safetensors --log {popular} {by_query} -o {model}.html")[0] == 0


@pytest.mark.parametrize("intervals", ["bootstrap", "sandwich"])
def test_a_curve_of_one_parameter_has_intervals_of_every_kind(run: Command, popular: str, intervals: str) -> None:
    command = (
        f"fit {popular} --curve power --penalty 1 --intervals {intervals} --bootstrap 50 --verbose -o model.safetensors"
    )
    code, out, _ = run(command)
    assert code == 0
    assert f"Intervals: {intervals}" in out


@pytest.fixture
def many_numbers() -> str:
    """A log with numbers that are correlated, nearly collinear, equal to each other, and constant."""
    random, queries, pages, k = np.random.default_rng(1), 200, 4_000, 4
    age, query = random.normal(size=queries), random.integers(0, 200, pages)
    order = random.permuted(np.tile(np.arange(k), (pages, 1)), axis=1)
    examined = np.arange(1, k + 1) ** -np.maximum(1 + 0.3 * age[query, None], 0)
    clicks = random.random((pages, k)) < examined * random.beta(2, 2, (queries, k))[query[:, None], order]
    numbers = {
        "age": age,
        "correlated": age + random.normal(size=queries),
        "nearly": age * 3 + 1e-7 * random.normal(size=queries),
        "twin": age,
        "constant": np.full(queries, 7.0),
        "rare": np.where(np.arange(queries) < 2, 1.0, 0.0),
    }
    columns = {
        "query": np.repeat(query, k),
        "doc": order.ravel(),
        "position": np.tile(np.arange(1, k + 1), pages),
        "click": clicks.ravel().astype(np.int8),
        **{name: np.repeat(values[query], k) for name, values in numbers.items()},
    }
    pq.write_table(pa.table(columns), "numbers.parquet")
    return "numbers.parquet"


@pytest.mark.parametrize(
    "options",
    [
        "--context age,twin",
        "--context age,nearly",
        "--context constant",
        "--context constant --curve linear",
        "--context age,correlated,nearly,twin,constant,rare",
        "--context age,correlated,nearly,twin,constant,rare --curve linear --unit query",
        "--context age,nearly,twin --curve mlp --shape width=4",
        "--context age,nearly,twin --curve power --intervals sandwich",
        "--context age,nearly,constant --curve linear --penalty 0 --intervals sandwich",
    ],
)
def test_numbers_may_say_the_same_or_nothing(run: Command, many_numbers: str, options: str) -> None:
    """The fit ends, and examination at the mean of all numbers is about 1/k whatever stands beside age."""
    code, _, err = run(f"fit {many_numbers} {options} -o model.safetensors --json")
    assert code == 0, err
    names = options.split()[1].split(",")
    means = {"constant": 7.0}
    pq.write_table(pa.table({name: [means.get(name, 0.0)] for name in names}), "average.parquet")
    assert run("propensities model.safetensors average.parquet -o p.parquet")[0] == 0
    found = pq.read_table("p.parquet")["propensity"].to_numpy()
    assert np.abs(np.log(found * np.arange(1, 5))).max() < 0.45
