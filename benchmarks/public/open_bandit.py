"""Reads the small sample of the Open Bandit Dataset that the package `obp` carries, as a log.

    pip download obp==0.4.1 --no-deps -d obp
    .venv/bin/python benchmarks/public/open_bandit.py obp/obp-0.4.1-py3-none-any.whl [-o open_bandit.parquet]

Prints displays and clicks by policy, campaign and position. `read(wheel)` returns the log: one row per display of an
item at one of three places side by side (1 left, 2 centre, 3 right), with the columns

- `doc`: campaign and item, as items are numbered anew in each campaign; there are no queries: `--query ""`;
- `position`, `click`, `time`; there is no page, as displays were sampled one by one;
- `ranker`: `random` (items drawn uniformly) or `bts` (Bernoulli Thompson sampling);
- `campaign`: `all`, `men` or `women`;
- `probability`: that of the item at this position, `--placement probability`.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

POLICIES, CAMPAIGNS = ("random", "bts"), ("all", "men", "women")
PLACES = "obp/dataset/obd/{policy}/{campaign}/{campaign}.csv"
COLUMNS = ["timestamp", "item_id", "position", "click", "propensity_score"]


def read(wheel: Path) -> pa.Table:
    """Return all six files of the sample as one log."""
    parts = []
    with zipfile.ZipFile(wheel) as archive:
        for policy in POLICIES:
            for campaign in CAMPAIGNS:
                file = archive.read(PLACES.format(policy=policy, campaign=campaign))
                shown = pv.read_csv(io.BytesIO(file), convert_options=pv.ConvertOptions(include_columns=COLUMNS))
                doc = pc.binary_join_element_wise(campaign, shown["item_id"].cast(pa.string()), " ")
                constants = {"ranker": policy, "campaign": campaign}
                parts.append(
                    pa.table(
                        {"doc": doc, "position": shown["position"], "click": shown["click"], "time": shown["timestamp"]}
                        | {name: pa.repeat(text, shown.num_rows) for name, text in constants.items()}
                        | {"probability": shown["propensity_score"]}
                    )
                )
    return pa.concat_tables(parts)


def counts(log: pa.Table) -> pa.Table:
    """Return displays and clicks by policy, campaign and position."""
    by = log.group_by(["ranker", "campaign", "position"]).aggregate([("click", "count"), ("click", "sum")])
    return by.rename_columns(["ranker", "campaign", "position", "displays", "clicks"]).sort_by(
        [("ranker", "descending"), ("campaign", "ascending"), ("position", "ascending")]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="write the log as Parquet, too")
    options = parser.parse_args()
    log = read(options.wheel)
    if options.output:
        pq.write_table(log, options.output)
    print(counts(log).to_pandas().to_csv(index=False, lineterminator="\n"), end="")


if __name__ == "__main__":
    main()
