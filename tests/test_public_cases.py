"""Readers of public cases in `benchmarks/public`, on files made by hand."""

import importlib
import sys
import zipfile

import pytest

from clickharvest import harvest, read_log
from places import BENCHMARKS


def test_open_bandit_is_read_as_a_log_without_queries(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(BENCHMARKS / "public"), *sys.path])
        open_bandit = importlib.import_module("open_bandit")
    wheel = tmp_path / "obp-0.4.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for number, policy in enumerate(open_bandit.POLICIES):
            for campaign in open_bandit.CAMPAIGNS:
                rows = "".join(
                    f"{i},2019-11-24 00:00:0{i}.762830+00:00,{i % 2},{1 + (i + number) % 3},{i % 2},0.0125,a,b\n"
                    for i in range(6)
                )
                header = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0\n"
                archive.writestr(open_bandit.PLACES.format(policy=policy, campaign=campaign), header + rows)
    log = open_bandit.read(wheel)
    assert log.num_rows == 36
    assert set(log["doc"].to_pylist()) == {
        f"{campaign} {item}" for campaign in ("all", "men", "women") for item in "01"
    }
    assert log["time"][0].as_py().year == 2019
    found = open_bandit.counts(log).to_pylist()
    assert found[0] == {"ranker": "random", "campaign": "all", "position": 1, "displays": 2, "clicks": 1}
    assert sum(row["clicks"] for row in found) == 18
    harvested = harvest(read_log(log, query=""))
    assert harvested.clicks.sum() == 18
