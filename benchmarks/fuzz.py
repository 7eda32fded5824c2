"""Does every command keep its contract, whatever it is given? Cases by seed, 0 broken is the bar.

    make benchmark-fuzz
    .venv/bin/python benchmarks/fuzz.py --cases 500 --seed 1
    .venv/bin/python benchmarks/fuzz.py --cases 300 --commands tally,plan
    .venv/bin/python benchmarks/fuzz.py --cases 300 --themes places,models,outcomes
    .venv/bin/python benchmarks/fuzz.py --only 4711            # one case again, its files kept and its output shown

A case is a command line with files that are bent in values, types, names or bytes, models and rankers that say
anything, options beyond their bounds, hostile strings, outputs that are links, pipes or inputs, and faults: a full
disk, closed streams, signals, no right to write (`fuzzing/`). It runs in a fork of a process that has everything
imported: its memory, streams, limits and signals are its own. `fuzzing/contract.py` says what is to be kept. Results
are kept in the folder of the run, so that an interrupted run goes on. Not tried: Spark, MLflow, the drawing of charts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "fuzzing"))

import cases  # noqa: E402
import contract  # noqa: E402
import materials  # noqa: E402
import running  # noqa: E402
from choices import COMMANDS  # noqa: E402
from themes import THEMES  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--commands", type=lambda text: text.split(","), help="these alone, such as tally,plan")
    parser.add_argument("--themes", type=lambda text: text.split(","), help="about these alone, such as places,models")
    parser.add_argument("--only", type=int, help="number of one case, to look at")
    parser.add_argument("--folder", type=Path, default=HERE / "data" / "fuzz", help="of results, to go on from")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(options.folder.absolute() / "compiled")}
    os.environ |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    own = "".join(f"-{name}" for name in (*(options.commands or ()), *(options.themes or ())))
    place = options.folder.absolute() / f"seed-{options.seed}{own}"
    if options.part is not None:
        work(options, place)
        return 0
    make_base(place)
    if options.only is not None:
        running.import_all()
        return int(bool(look_at(options, place)))
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--cases", str(options.cases), "--seed", str(options.seed)]
    command += ["--jobs", str(options.jobs), "--folder", str(options.folder)]
    command += [] if options.commands is None else ["--commands", ",".join(options.commands)]
    command += [] if options.themes is None else ["--themes", ",".join(options.themes)]
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


def make_base(place: Path) -> None:
    """Make the sound files, in a process that ends: fits start threads, which forks must not inherit."""
    if (place / "base").is_dir():
        return
    partial = place / f"base-{os.getpid()}"
    child = os.fork()
    if child == 0:
        try:
            materials.make_base(partial)
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the sound files could not be made")
    partial.rename(place / "base")


def work(options: argparse.Namespace, place: Path) -> None:
    """Run every case of one part that has no result yet."""
    known = read_results(place)
    running.import_all()
    with (place / f"results-{options.part}.jsonl").open("a") as file:
        for number in range(options.part, options.cases, options.jobs):
            if number in known:
                continue
            found = try_case(options, number, place)
            file.write(json.dumps(found) + "\n")
            file.flush()
            if found["broken"]:
                print(
                    f"case {number} of seed {options.seed}: {'; '.join(found['broken'])}\n  {found['words']}",
                    flush=True,
                )


def try_case(options: argparse.Namespace, number: int, place: Path, *, keep: bool = False) -> dict:
    """Run one case; a case that is killed is followed by a sound run, which has to clean up."""
    folder = place / "cases" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    drawn = random.Random(f"{options.seed} {number}")
    case = cases.build(
        place / "base", folder, drawn, options.commands or list(COMMANDS), options.themes or list(THEMES)
    )
    open_to_all(case)
    before = contract.state_of(folder)
    begin = time.perf_counter()
    outcome = running.run(case)
    if case.fault == "kill":
        after_kill(case)
    broken = contract.broken(case, before, contract.state_of(folder), outcome)
    if keep:
        print(outcome.out, outcome.err, sep="\n", end="")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.perf_counter() - begin, 2)
    told = {"case": number, "command": case.command, "code": outcome.code, "fault": case.fault, "seconds": seconds}
    return told | {"broken": broken, "words": case.words, "error": outcome.err[-300:]}


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
    found = try_case(options, options.only, place, keep=True)
    print(json.dumps(found, indent=1, ensure_ascii=True))
    print(f"files: {place / 'cases' / str(options.only)}")
    return found["broken"]


def read_results(place: Path) -> dict[int, dict]:
    lines = [line for file in place.glob("results-*.jsonl") for line in file.read_text().splitlines()]
    return {result["case"]: result for result in map(json.loads, lines)}


def tell(results: list[dict], options: argparse.Namespace, seconds: float) -> None:
    """Print the table of the README: kept and broken, by command and exit code."""
    codes = (0, 2, 3, 130, 141)
    print(f"\n| command | cases | {' | '.join(f'exit {code}' for code in codes)} | with a fault | broken |")
    print("|---|" + "---:|" * (len(codes) + 3))
    for name in [*(options.commands or COMMANDS), "all"]:
        own = [result for result in results if name in (result["command"], "all")]
        counts = Counter(result["code"] for result in own)
        cells = [
            len(own),
            *(counts[code] for code in codes),
            sum(r["fault"] is not None for r in own),
            sum(bool(r["broken"]) for r in own),
        ]
        print(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    broken = [result for result in results if result["broken"]]
    kept = len(results) - len(broken)
    told = f"seed {options.seed}; {seconds / 60:.1f} minutes, {options.jobs} processes."
    print(f"\n{kept:,} kept, {len(broken):,} broken, {told}")
    for result in broken[:50]:
        print(f"  --seed {options.seed} --only {result['case']}: {'; '.join(result['broken'])}")


if __name__ == "__main__":
    raise SystemExit(main())
