"""The command `simulate`: a folder with a log of known truth, and the commands to try on it."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from clickharvest import __version__
from clickharvest.commands.declaring import SEED, argument, between, option, parse_numbers, whole
from clickharvest.commands.options import FolderPath, JsonFlag
from clickharvest.commands.output import check_folder, place_to_write, tell, tell_json
from clickharvest.commands.progress import show_progress
from clickharvest.errors import InputError
from clickharvest.files import atomic_folder
from clickharvest.simulate.names import BROWSING_MODELS, CURVES, DEPLOYMENTS, REPETITIONS, USER_KINDS
from clickharvest.words import count

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

LOG, SWAP, RANKINGS, TRUTH = "log.parquet", "swap.parquet", "rankings.parquet", "truth.parquet"
SETTINGS, DOCUMENTS, JUDGEMENTS = "settings.json", "documents.parquet", "judgements.parquet"
FILES = (LOG, SWAP, RANKINGS, TRUTH, SETTINGS, DOCUMENTS, JUDGEMENTS)
SYNTHETIC = "synthetic"

MOST_QUERIES, MOST_POSITIONS, MOST_SWEEPS, LARGEST_ETA = 10_000_000, 1_000, 1e9, 100.0
USUAL_QUERIES, USUAL_POSITIONS = 11_473, 10
MOST_ROWS = 500_000_000
"""Of a log: more would not fit into the memory of most machines."""
LAYOUTS = ("grid", "carousel", "ads", "pages")
SIMULATORS = ("protocol", "ab", "arxiv", *LAYOUTS)

_protocol_option = partial(option, panel="The protocol")
_corpus_option = partial(option, panel="The corpus of the protocol")


@dataclass(frozen=True)
class SimulateOptions:
    """What to simulate; an option that is None has the simulator's own default."""

    queries: int | None = option(
        "Queries of the log (protocol: 11,473, or all of a corpus).", check=whole(1, MOST_QUERIES)
    )
    positions: int | None = option("Results on a page (default: 10; arxiv: 21).", "K", check=whole(2, MOST_POSITIONS))
    pages: int | None = option("Result pages of ab and layouts (default: 20,000).", check=whole(1, MOST_QUERIES))
    seed: int = option("Seed of all randomness.", default=0, check=SEED)
    sweeps: float | None = _protocol_option(
        "How often each ranker serves each query (default: 1).", check=between(1e-6, MOST_SWEEPS)
    )
    training_queries: int | None = _protocol_option(
        "Instead: queries times sweeps, as the paper counts.", "N", rare=True, check=whole(1, int(MOST_SWEEPS))
    )
    test_queries: int | None = _protocol_option(
        "Other queries, for the truth (default: 2,000, or a fifth of a corpus).", "N", check=whole(0, MOST_QUERIES)
    )
    eta: float | None = _protocol_option(
        "How much context matters to examination (default: 0.5).", check=between(0, LARGEST_ETA)
    )
    zeta: float | None = _protocol_option(
        "Share of the context tied to relevance, 0 to 1 (default: 1).", rare=True, check=between(0, 1)
    )
    examination: str | None = _protocol_option("The true curve (default: power).", names=CURVES)
    clicks: str | None = _protocol_option("The click model (default: pbm).", names=USER_KINDS)
    noise: float | None = _protocol_option(
        "Clicks on irrelevant results that are examined (default: 0.1).", check=between(0, 1)
    )
    traffic: str | None = _protocol_option("Traffic of each ranker, of any number (default: 50,50).", "A,B,…")
    repetition: str | None = _protocol_option("How queries repeat (default: even).", names=REPETITIONS, rare=True)
    deployment: str | None = _protocol_option("Of the rankers (default: ab).", names=DEPLOYMENTS, rare=True)
    rows: bool = _protocol_option("One log row per display, not counts.", default=False)
    documents: bool = _protocol_option("Write the documents' features and grades too.", default=False)
    corpus: str | None = _corpus_option("LETOR file (plain or .gz) or folder; or synthetic (default).", "PATH")
    threshold: int | None = _corpus_option("Least grade of a relevant document.", rare=True, check=whole(0, 1_000_000))
    cache: Path | None = _corpus_option("Keep the parsed corpus there, for the next time.", "FOLDER", rare=True)

    def arguments(self, simulator: str) -> dict[str, Any]:
        """Return the options that were given, and refuse those that the simulator does not have."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in given.items() if value is not None and value is not False}
        if foreign := given.keys() - ALLOWED[simulator]:
            flag, *known = ("--" + name.replace("_", "-") for name in (min(foreign), *ALLOWED[simulator]))
            raise InputError(f"{flag} does not go with simulate {simulator}: it has {', '.join(known)}")
        return given


ALLOWED = {
    "protocol": [field.name for field in fields(SimulateOptions) if field.name != "pages"],
    "ab": ["pages", "queries", "positions", "seed"],
    "arxiv": ["queries", "positions", "seed"],
    **{layout: ["pages", "queries", "seed"] for layout in LAYOUTS},
}
"""The options of every simulator."""


@dataclass(frozen=True)
class _Made:
    """What a simulator made: its tables by file, context columns and design options to name, settings, truth."""

    tables: dict[str, pa.Table]
    context: Sequence[str]
    design: Sequence[str]
    settings: dict[str, Any]
    truth: str


def simulate(
    simulation: SimulateOptions,
    simulator: Annotated[
        str,
        argument(
            "The paper's protocol; a small A/B test; an arXiv-like log with A/B and swaps; or a layout of places: a "
            "grid, a carousel, ads beside results, pages of a list.",
            names=SIMULATORS,
        ),
    ] = "protocol",
    output: FolderPath = None,
    force: Annotated[bool, option("Replace the simulation that FOLDER holds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a log with known truth, to try methods on.

    Writes log.parquet, truth.parquet, settings.json and, where several rankers are known, rankings.parquet.

    Examples:

      clickharvest simulate -o simulated --sweeps 5 --traffic 80,15,5

      clickharvest simulate --corpus mq2007.txt.gz --clicks trust -o simulated

      clickharvest simulate arxiv -o arxiv
    """
    import numpy as np
    import pyarrow.parquet as pq

    from clickharvest.commands.tables import screen

    output = place_to_write(output, "the simulation", "simulated")
    given = simulation.arguments(simulator)
    check_place = partial(check_folder, output, "a simulation", FILES, replace=force)
    check_place()
    _check_size(given)
    with show_progress("Simulating"):
        makers = {"protocol": _protocol, "ab": _ab, "arxiv": _arxiv}
        made = makers[simulator](given, output) if simulator in makers else _layout(simulator, given)
        about = {"clickharvest": __version__, "simulator": simulator, "truth": made.truth, **made.settings}
        with atomic_folder(output, check_place) as unfinished:
            for name, table in made.tables.items():
                pq.write_table(table, unfinished / name)
            (unfinished / SETTINGS).write_text(json.dumps(about, indent=2) + "\n")
    log = made.tables[LOG]
    clicks = int(np.sum(log["clicks" if "clicks" in log.column_names else "click"].to_numpy(), dtype=np.int64))
    commands = _next_commands(output, made)
    if as_json:
        files = {name: str(output / name) for name in (*made.tables, SETTINGS)}
        answer = {"folder": str(output), "files": files, "rows": log.num_rows, "clicks": clicks}
        tell_json(answer | {"next": [" ".join(command) for command in commands], "settings": about})
        return
    tell(f"{count(log.num_rows, 'row')}, {count(clicks, 'click')}: {output / LOG}")
    for name, table in made.tables.items():
        if name != LOG:
            tell(f"{table.num_rows:,} rows: {output / name}")
    screen().print(f"\n{made.truth}\n\nNext, can this log tell, and what does it tell?\n")
    for command in commands:
        tell("  " + " \\\n      ".join(command))


def _check_size(given: Mapping[str, Any]) -> None:
    """Refuse a log that would take all of the memory: as many rows as there are displays, or cells of counts."""
    rankers = given.get("traffic", ",").count(",") + 1
    sweeps = given.get("sweeps", 1.0)
    if "training_queries" in given:
        sweeps = given["training_queries"] / given.get("queries", USUAL_QUERIES)
    shown = max(sweeps, 1) if "rows" in given or given.get("clicks") in BROWSING_MODELS else 1
    pages = given.get("pages", given.get("queries", USUAL_QUERIES) * shown * rankers)
    if (rows := pages * given.get("positions", USUAL_POSITIONS)) > MOST_ROWS:
        raise InputError(f"the log would have {rows:,.0f} rows, more than {MOST_ROWS:,}: simulate less")


def _protocol(given: dict[str, Any], output: Path) -> _Made:
    from clickharvest.simulate.letor import read_letor
    from clickharvest.simulate.protocol import simulate_protocol

    corpus_options = {name: given.pop(name) for name in ("threshold", "cache") if name in given}
    path, rows, documents = given.pop("corpus", SYNTHETIC), given.pop("rows", False), given.pop("documents", False)
    if path == SYNTHETIC:
        if corpus_options:
            raise InputError(f"--{min(corpus_options)} goes with --corpus PATH: the synthetic corpus has none")
        corpus = None
    else:
        corpus = read_letor(path, **corpus_options)
        given = {"queries": None, "test_queries": None} | given
    if "traffic" in given:
        expected = "numbers such as 80,15,5, one for each ranker"
        given["traffic"] = tuple(parse_numbers(given["traffic"], "--traffic", expected))
    if "sweeps" not in given and "training_queries" not in given:
        given["sweeps"] = 1.0
    simulation = simulate_protocol(corpus=corpus, **given)
    log = simulation.rows(seed=given["seed"]) if rows else simulation.log
    contexts = dict(zip(simulation.context, simulation.test_contexts.T, strict=True))
    shares = ",".join(f"{name}={share:.6g}" for name, share in simulation.traffic.items())
    truth = f"{TRUTH}: the true examination of {len(simulation.test):,} other contexts, 1 at position 1."
    if simulation.click_model.browses:
        truth += " Where users browse it depends on the results above: the mean over the rankers' pages."
    settings = _settings(simulate_protocol, given) | {
        "corpus": path,
        "queries": len(simulation.train),
        "test_queries": len(simulation.test),
        "documents": len(simulation.train.grades),
        "features": simulation.train.features.shape[1],
        "threshold": simulation.train.threshold,
        "rows": rows,
        "examination_weights": simulation.examination.weights.tolist(),
    }
    tables = {LOG: log, RANKINGS: simulation.rankings, TRUTH: _truth_table(contexts, simulation.test_examination)}
    if documents:
        tables |= {DOCUMENTS: simulation.documents, JUDGEMENTS: simulation.judgements}
    return _Made(
        tables,
        simulation.context,
        [f"--rankings {shlex.quote(str(output / RANKINGS))}", f"--traffic {shares}"],
        settings,
        truth,
    )


def _ab(given: dict[str, Any], output: Path) -> _Made:
    import numpy as np

    from clickharvest.simulate.ab_test import simulate_ab_log

    log, truth = simulate_ab_log(**given)
    tables = {LOG: log, TRUTH: _truth_table({"device": np.array(truth.contexts)}, truth.examination)}
    about = f"{TRUTH}: the true examination on desktop and mobile, 1 at position 1."
    return _Made(tables, ["device"], [], _settings(simulate_ab_log, given), about)


def _layout(layout: str, given: dict[str, Any]) -> _Made:
    import pyarrow as pa

    from clickharvest.simulate.layouts import simulate_places

    given = {**given, "layout": layout}
    log, truth = simulate_places(**given)
    columns = {name: list(truth.places.values(i)) for i, name in enumerate(truth.places.columns)}
    tables = {LOG: log, TRUTH: pa.table({**columns, "examination": truth.examination[0]})}
    about = f"{TRUTH}: the true examination of every place, 1 at {truth.places.name(1)}."
    settings = _settings(simulate_places, given)
    return _Made(tables, [], [f"--place {','.join(truth.places.columns)}", "--page view"], settings, about)


def _arxiv(given: dict[str, Any], output: Path) -> _Made:
    import pyarrow.compute as pc

    from clickharvest.simulate.arxiv import simulate_arxiv

    simulation = simulate_arxiv(**given)
    held_out = simulation.pages(split="test")
    columns = ("category", "query_len", "ord_in_session", "results")
    contexts: dict[str, NDArray[Any]] = {"complex": simulation.is_complex[held_out]}
    contexts |= {name: getattr(simulation, name)[held_out] for name in columns}
    swapped = simulation.log["swap"]
    tables = {
        LOG: simulation.log.filter(pc.invert(swapped)),
        SWAP: simulation.log.filter(swapped),
        RANKINGS: simulation.rankings,
        TRUTH: _truth_table(contexts, simulation.examination[held_out]),
    }
    about = f"{TRUTH}: the true examination of the pages of the test split, 1 at position 1; {SWAP}: the swapped pages."
    design = [f"--rankings {shlex.quote(str(output / RANKINGS))}", "--traffic f1=1,f2=1,f3=1"]
    return _Made(tables, ["complex"], design, _settings(simulate_arxiv, given), about)


def _truth_table(contexts: Mapping[str, NDArray[Any]], examination: NDArray[np.float64]) -> pa.Table:
    """Return one row per context and position."""
    import numpy as np
    import pyarrow as pa

    n, positions = examination.shape
    columns = {name: np.repeat(values, positions) for name, values in contexts.items()}
    place = np.tile(np.arange(1, positions + 1), n)
    return pa.table({**columns, "position": place, "examination": examination.ravel()})


def _settings(simulate: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    defaults = {name: parameter.default for name, parameter in inspect.signature(simulate).parameters.items()}
    defaults.pop("corpus", None)
    return json.loads(json.dumps(defaults | given))  # type: ignore[no-any-return]


def _next_commands(output: Path, made: _Made) -> list[list[str]]:
    log, model = shlex.quote(str(output / LOG)), shlex.quote(f"{output}.safetensors")
    options = [*([f"--context {','.join(made.context)}"] if made.context else []), *made.design]
    return [[f"clickharvest check {log}", *options], [f"clickharvest fit {log}", *options, f"-o {model}"]]
