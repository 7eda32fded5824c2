"""Validation: a curve beside pages in random order, or beside a swap, of worlds with known examination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checks.worlds import WIDE, World, quietly, world
from clickharvest import Swap, read_log, validate
from clickharvest.checks.validating import Validation
from clickharvest.errors import InputError, NotIdentifiedError
from clickharvest.model import curve_of_numbers
from command_line import Command
from places import SHARED_DATA

RANDOM = {"ranker": "random"}
TRUTH = 1 / np.arange(1, WIDE + 1)
EXPEDIA = SHARED_DATA / "expedia_pieces.parquet"


def validated(drawn: World, **options: Any) -> Validation:
    with quietly():
        return validate(drawn.log(), **{"random": RANDOM} | options)


@pytest.fixture(scope="module")
def sound() -> Validation:
    return validated(world(2).shuffled().draw(), pool=True)


def test_a_sound_log_agrees_with_its_random_pages(sound: Validation) -> None:
    assert sound.agrees is True
    assert sound.held is True
    for curve in (sound.harvested, sound.random, sound.pooled_curve):
        assert curve is not None
        assert np.abs(curve.log_p - np.log(TRUTH)).max() < 0.15
        assert (np.abs(curve.log_p - np.log(TRUTH)) < 3 * curve.error + 1e-9).all()
        assert abs(curve.power - 1) < 3 * curve.power_error
    assert sound.rates.power > 1.2, "click rates mix examination with relevance"
    assert 0.3 < sound.gain < 1, "all pages tell more than some of them"


def test_its_answer_can_be_read_by_machines(sound: Validation) -> None:
    told = sound.to_dict()
    assert told["agrees"] is True
    assert set(told["power"]) == {"harvested", "random", "rates", "within_results"}
    assert [row["position"] for row in told["positions"]] == list(range(2, WIDE + 1))
    assert all(low < share < high for share, low, high in (row["random"] for row in told["positions"]))
    assert told["budget"]["word"] == "with care"


def test_rankers_that_know_their_users_are_found_out() -> None:
    found = validated(world(0, taste=1.0, known=1.0).shuffled().draw())
    assert found.agrees is False
    assert found.ratio[2] < 1, "preference is mistaken for position: the curve is too steep"
    assert "differ by more than chance" in found.sentences()[0]


def test_numbers_from_elsewhere_are_held_against_the_random_pages() -> None:
    drawn = world(3).shuffled().draw()
    right = validated(drawn, model=curve_of_numbers(dict(enumerate(TRUTH, 1))))
    wrong = validated(drawn, model=curve_of_numbers(dict(enumerate(TRUTH**1.5, 1))), pool=True)
    assert right.agrees is True
    assert right.budget is None
    assert wrong.agrees is False
    assert wrong.pooled is None, "what differs is not pooled"


def test_an_experiment_of_few_clicks_is_no_evidence() -> None:
    found = validated(world(4).shuffled(0.002).draw())
    assert found.agrees is None
    assert "Too few clicks" in found.sentences()[0]


def test_pages_that_are_not_in_random_order_are_found_out() -> None:
    found = validated(world(0, noise=(0.3, 0.3, 0.3)).draw(), random={"ranker": "a"})
    assert found.same_order > 0.9
    assert found.agrees is None
    assert "not random" in found.sentences()[0]


def test_the_swap_is_as_good_an_experiment() -> None:
    drawn = world(5, pages=20_000).swapped().draw()
    probabilities = {rank: 0.3 / WIDE + 0.7 * (rank == 1) for rank in range(1, WIDE + 1)}
    with quietly():
        found = validate(drawn.log(), swap=Swap(probabilities))
    assert found.agrees is True
    assert np.abs(found.random.log_p - np.log(TRUTH)).max() < 0.2
    assert found.what == "swapped pages"


def booked(drawn: World, share: float) -> World:
    """Of ordinary pages, keep nearly only those with a booking; of random ones every page. A booking is a click."""
    drawn.rows["booked"] = (drawn.clicks & (drawn.random.random(drawn.clicks.shape) < 0.3)) * 1
    chosen = drawn.columns["ranker"] == "random"
    kept = chosen | (drawn.rows["booked"].max(axis=1) > 0) | (drawn.random.random(len(chosen)) < share)
    drawn.kept = np.tile(kept[:, None], (1, WIDE))
    return drawn


def test_pages_that_were_sampled_by_an_outcome_are_compared_with_their_like() -> None:
    drawn = booked(world(6).shuffled(0.3).draw(), 0.02)
    found = validated(drawn)
    assert found.agrees is None
    assert found.parts is not None
    assert found.parts.outcome == "booked"
    alike = validated(drawn, pages_with="booked")
    assert alike.parts is not None
    assert not alike.parts.sampled
    assert alike.agrees is not None


def test_without_a_page_column_clicks_of_a_query_are_compared() -> None:
    drawn = world(2).shuffled().draw()
    with quietly():
        found = validate(drawn.log("page", "user", "time"), random=RANDOM)
    assert np.abs(found.random.log_p - np.log(TRUTH)).max() < 0.3
    assert found.agrees is True


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"random": None}, InputError, "nothing tells which pages are in random order"),
        ({"random": {"ranker": "x"}}, InputError, "no row has this value"),
        ({"pages_with": "nothing"}, InputError, "no column 'nothing'"),
        ({"swap": Swap.uniform(2)}, InputError, "two experiments"),
        ({"random": None, "swap": Swap.uniform(2)}, InputError, "original"),
    ],
)
def test_what_cannot_be_asked_is_told(options: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        validated(world(1, pages=500).shuffled().draw(), **options)


def test_ordinary_pages_that_never_move_reveal_nothing() -> None:
    still = world(1, noise=(0.3,)).shuffled().draw()
    with pytest.raises(NotIdentifiedError, match="no curve to validate"):
        validated(still)


def write(folder: Path, drawn: World) -> Path:
    import pyarrow.parquet as pq

    pq.write_table(drawn.table(), folder / "log.parquet")
    return folder / "log.parquet"


def test_the_command(run: Command, tmp_path: Path) -> None:
    write(tmp_path, world(2).shuffled().draw())
    code, out, _ = run("validate log.parquet --random ranker=random --pool -o all.safetensors")
    assert code == 0
    assert "They agree within chance" in out
    assert "saved: all.safetensors" in out
    assert len(out.splitlines()) <= 25
    (tmp_path / "theirs.csv").write_text("position,propensity\n1,1\n2,.5\n3,.33\n4,.25\n5,.2\n6,.17\n")
    code, out, _ = run("validate log.parquet --random ranker=random --model theirs.csv --json")
    assert code == 0
    assert '"agrees": true' in out
    assert run("show all.safetensors")[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "name the experiment"),
        ("--random ranker=random --swap 3", "name the experiment"),
        ("--random ranker=random --placement position", "leave other designs out"),
        ("--random ranker=random -o m.safetensors", "add --pool"),
        ("--random ranker=random --model bad.csv", "expected numbers under position and propensity"),
        ("--random ranker=random --model twice.csv", "several numbers"),
    ],
)
def test_the_command_refuses(run: Command, tmp_path: Path, words: str, told: str) -> None:
    write(tmp_path, world(1, pages=300).shuffled().draw())
    (tmp_path / "bad.csv").write_text("rank,p\n1,1\n")
    (tmp_path / "twice.csv").write_text("position,propensity\n1,1\n1,.5\n2,.3\n")
    code, _, errors = run(f"validate log.parquet {words}")
    assert code == 2
    assert told in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.nightly
@pytest.mark.skipif(not EXPEDIA.exists(), reason="the Expedia log is not at hand")
def test_expedia_agrees_with_its_random_searches_where_like_is_compared_with_like() -> None:
    log = read_log(EXPEDIA, random=RANDOM)
    assert validate(log).agrees is None
    found = validate(log, pages_with="booked")
    assert found.agrees is True
    assert abs(found.random.power - 0.64) < 0.03, "METHOD has .64"
    assert len(found.positions) > 20
