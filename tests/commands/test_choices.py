"""Options whose values are names of a registry: others are refused in one line."""

from __future__ import annotations

import pytest

from command_line import Command


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("fit x.csv --curve cubic", "Invalid value for '--curve': 'cubic' is not one of 'auto', 'constant', 'index'"),
        ("fit x.csv --objective mse", "'--objective': 'mse' is not one of 'allpairs', 'clickshare'"),
        (
            "fit x.csv --relevance deep",
            "'--relevance': 'deep' is not one of 'auto', 'constant', 'mlp', 'squares', 'free'",
        ),
        ("fit x.csv --weighting max", "'--weighting': 'max' is not one of 'paper', 'min', 'harmonic'"),
        ("rank x.csv f.csv --learner bm25", "'--learner': 'bm25' is not one of 'lightgbm', 'linear', 'svm', 'xgboost'"),
        ("simulate --examination bathtub", "'--examination': 'bathtub' is not one of 'power', 'fold'"),
        ("simulate --clicks ccm", "'--clicks': 'ccm' is not one of 'pbm', 'trust', 'cascade'"),
        ("simulate --repetition odd", "'--repetition': 'odd' is not one of 'even', 'zipf', 'same'"),
        ("simulate --deployment cd", "'--deployment': 'cd' is not one of 'ab', 'consecutive'"),
        ("harvest x.csv --format ga3", "'--format': 'ga3' is not one of 'adobe', 'algolia', 'elastic', 'ga4'"),
    ],
)
def test_another_name_is_refused_in_one_line(run: Command, arguments: str, told: str) -> None:
    code, out, err = run(arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1
