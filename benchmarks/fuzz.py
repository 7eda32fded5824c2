"""Does every command keep its contract, whatever it is given? Cases by seed, 0 broken is the bar.

    make benchmark-fuzz                                     # 10,000 cases; writes the table
    .venv/bin/python benchmarks/fuzz.py --cases 500 --seed 1
    .venv/bin/python benchmarks/fuzz.py --cases 300 --kinds valid --commands fit,report
    .venv/bin/python benchmarks/fuzz.py --cases 300 --kinds hostile --themes places,models,outcomes
    .venv/bin/python benchmarks/fuzz.py --only 4711         # one case again, its files kept and its output shown

There are three kinds of cases:

- `hostile`: files that are bent in values, types, names or bytes, models and rankers that say anything, options beyond
  their bounds, hostile strings, outputs that are links, pipes or inputs, and faults: a full disk, closed streams,
  signals, no right to write (`fuzzing/cases.py`);
- `valid`: valid options and columns of small logs, combined so that pairs of options are covered
  (`fuzzing/combinations.py`);
- `counts`: what `harvest` and `check` count in logs of every file type, against a reader in plain Python
  (`fuzzing/counting.py`).

A case runs in a fork of a process that has everything imported: its memory, streams, limits and signals are its own.
`fuzzing/contract.py` says what is to be kept. Results are kept in the folder of the run, so that an interrupted run
goes on. Not tried: Spark, MLflow, the drawing of charts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "fuzzing"))

import cases  # noqa: E402
import combinations  # noqa: E402
import contract  # noqa: E402
import counting  # noqa: E402
import materials  # noqa: E402
import running  # noqa: E402
import small_logs  # noqa: E402
from choices import COMMANDS  # noqa: E402
from themes import THEMES  # noqa: E402

KINDS = {"hostile": 30, "valid": 50, "counts": 20}
"""How many of a hundred cases are of each kind."""
LONGEST = 60.0
"""Processor seconds that a valid command on a small log may take."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--commands", type=lambda text: text.split(","), help="these alone, such as tally,plan")
    parser.add_argument(
        "--kinds", type=shares, default=KINDS, help="of these alone, such as valid or hostile:2,valid:1"
    )
    parser.add_argument("--themes", type=lambda text: text.split(","), help="hostile ones about these alone")
    parser.add_argument("--only", type=int, help="number of one case, to look at")
    parser.add_argument("--folder", type=Path, default=HERE / "data" / "fuzz", help="of results, to go on from")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    filters = {name: getattr(options, name) for name in ("commands", "themes")}
    if options.kinds != KINDS:
        filters["kinds"] = [f"{kind}:{share}" for kind, share in options.kinds.items()]
    own = "".join(f"-{word}" for words in filters.values() for word in words or ())
    place = options.folder.absolute() / f"seed-{options.seed}{own}"
    if options.part is not None:
        work(options, place)
        return 0
    combinations.check_tables()
    make_base(place)
    if options.only is not None:
        running.import_all()
        return int(bool(look_at(options, place)))
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--cases", str(options.cases), "--seed", str(options.seed)]
    command += ["--jobs", str(options.jobs), "--folder", str(options.folder)]
    command += [word for name, words in filters.items() if words for word in (f"--{name}", ",".join(words))]
    parts = [subprocess.Popen([*command, "--part", str(i)]) for i in range(options.jobs)]
    try:
        codes = [part.wait() for part in parts]
    except KeyboardInterrupt:
        for part in parts:
            part.send_signal(signal.SIGINT)
        return 130
    results = [result for result in read_results(place).values() if result["case"] < options.cases]
    tell(results, options, time.perf_counter() - begin)
    return int(any(codes) or len(results) < options.cases or any(result["broken"] for result in results))


def shares(text: str) -> dict[str, int]:
    """Return the kinds of cases that a text names, with how often each is drawn."""
    words = [word.partition(":") for word in text.split(",")]
    if unknown := [kind for kind, _, _ in words if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"no kind {unknown[0]}: expected {', '.join(KINDS)}")
    return {kind: int(share or 1) for kind, _, share in words}


def make_base(place: Path) -> None:
    """Make the sound files, in processes that end: fits start threads, which forks must not inherit."""
    if (place / "base").is_dir():
        return
    partial = place / f"base-{os.getpid()}"
    children = []
    for make, folder in ((materials.make_base, partial), (small_logs.make_logs, place / f"valid-{os.getpid()}")):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                make(folder)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
    codes = [os.waitpid(child, 0)[1] for child in children]
    if any(codes):
        raise SystemExit("the sound files could not be made")
    (place / f"valid-{os.getpid()}").rename(partial / "valid")
    partial.rename(place / "base")


def work(options: argparse.Namespace, place: Path) -> None:
    """Run every case of one part that has no result yet."""
    known = read_results(place)
    running.import_all()
    all_cases = Cases(options, place / "base")
    with (place / f"results-{options.part}.jsonl").open("a") as file:
        for number in range(options.part, options.cases, options.jobs):
            if number in known:
                continue
            found = try_case(all_cases, number, place)
            file.write(json.dumps(found) + "\n")
            file.flush()
            if found["broken"]:
                print(
                    f"case {number} of seed {options.seed}: {'; '.join(found['broken'])}\n  {found['words']}",
                    flush=True,
                )


class Cases:
    """The cases of a seed: case n is always the same."""

    def __init__(self, options: argparse.Namespace, base: Path) -> None:
        self.options, self.base = options, base
        drawn = random.Random(f"{options.seed} kinds")
        self.kinds = drawn.choices(list(options.kinds), list(options.kinds.values()), k=max(options.cases, 10**5))
        self.combinations = combinations.Combinations(options.seed, options.commands or combinations.COMMANDS)

    def build(self, number: int, folder: Path) -> tuple[cases.Case, dict]:
        """Write the files of a case; return it with the options of a valid one, or the counts of a log."""
        kind = self.kinds[number]
        if kind == "valid":
            command, chosen = self.combinations[self.kinds[:number].count(kind)]
            return combinations.build(self.base, folder, command, chosen), chosen
        drawn = random.Random(f"{self.options.seed} {number}")
        if kind == "counts":
            return counting.build(folder, drawn)
        commands, themes = self.options.commands or list(COMMANDS), self.options.themes or list(THEMES)
        return cases.build(self.base, folder, drawn, commands, themes), {}


def try_case(all_cases: Cases, number: int, place: Path, *, keep: bool = False) -> dict:
    """Run one case; a case that is killed is followed by a sound run, which has to clean up."""
    folder = place / "cases" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    kind = all_cases.kinds[number]
    case, about = all_cases.build(number, folder)
    open_to_all(case)
    before = contract.state_of(folder)
    begin = processor_seconds()
    outcome = running.run(case)
    if case.fault == "kill":
        after_kill(case)
    broken = contract.broken(case, before, contract.state_of(folder), outcome)
    broken += counting.wrong(case, about, outcome) if kind == "counts" else []
    if keep:
        print(outcome.out, outcome.err, sep="\n", end="")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(processor_seconds() - begin, 2)
    if kind == "valid" and seconds > LONGEST:
        broken.append(f"took {seconds:.0f} s of the processor")
    told = {"case": number, "command": case.command, "code": outcome.code, "fault": case.fault, "seconds": seconds}
    told |= {"kind": kind, "chosen": about if kind == "valid" else {}}
    return told | {"broken": broken, "words": case.words, "error": outcome.err[-300:]}


def processor_seconds() -> float:
    """Return what the cases so far have taken of the processor: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def open_to_all(case: cases.Case) -> None:
    """Where a case runs without rights, let it use its folder, or only read it."""
    if case.fault == "nobody":
        for path in (case.folder, case.folder / "tmp"):
            path.chmod(0o777 if case.amount < 0.5 or path.name == "tmp" else 0o755)


def after_kill(case: cases.Case) -> None:
    """Write into the folder where a process was killed: this run removes what that one left."""
    sweeper = cases.Case("harvest", case.folder, ["harvest", "log.parquet", "-o", "swept.parquet"])
    assert running.run(sweeper).code == 0
    (case.folder / "swept.parquet").unlink()


def look_at(options: argparse.Namespace, place: Path) -> list[str]:
    found = try_case(Cases(options, place / "base"), options.only, place, keep=True)
    print(json.dumps(found, indent=1, ensure_ascii=True))
    print(f"files: {place / 'cases' / str(options.only)}")
    return found["broken"]


def read_results(place: Path) -> dict[int, dict]:
    lines = [line for file in place.glob("results-*.jsonl") for line in file.read_text().splitlines()]
    return {result["case"]: result for result in map(json.loads, lines)}


def tell(results: list[dict], options: argparse.Namespace, seconds: float) -> None:
    """Print the tables of the README; write them there after a whole run of all kinds and commands."""
    codes = (0, 2, 3, 130, 141)
    lines = [f"| cases | tried | {' | '.join(f'exit {code}' for code in codes)} | with a fault | broken |"]
    lines.append("|---|" + "---:|" * (len(codes) + 3))
    groups = [(kind, [r for r in results if r["kind"] == kind]) for kind in options.kinds]
    groups += [(f"`{name}`", [r for r in results if r["command"] == name]) for name in options.commands or COMMANDS]
    for name, own in [*groups, ("all", results)]:
        counts = Counter(result["code"] for result in own)
        faults, broken = sum(r["fault"] is not None for r in own), sum(bool(r["broken"]) for r in own)
        cells = [len(own), *(counts[code] for code in codes), faults, broken]
        lines.append(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    broken = [result for result in results if result["broken"]]
    used = sum(result["seconds"] for result in results)
    lines += ["", *combinations.table(results), ""]
    lines.append(
        f"{len(results):,} cases of seed {options.seed} on {datetime.now(UTC):%Y-%m-%d}: {len(broken):,} broken; "
        f"{used / 60:.0f} minutes of the processor in cases, {options.jobs} processes."
    )
    print("", *lines, f"{seconds / 60:.1f} minutes", sep="\n")
    for result in broken[:50]:
        print(f"  --seed {options.seed} --only {result['case']}: {'; '.join(result['broken'])}")
    if len(results) >= 10_000 and options.kinds == KINDS and not (options.commands or options.themes):
        from tables import write_table

        write_table("fuzz", "\n".join(lines))


if __name__ == "__main__":
    raise SystemExit(main())
