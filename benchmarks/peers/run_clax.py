"""Click models of CLAX, trained as its README and examples do: AdamW at .003, up to 50 epochs, early stopping.

    pbm       PositionBasedModel as it comes: a parameter per position, a parameter per document of a query
    context   the same with examination from position and context, CLAX's deep parameter at its defaults
    towers    the two-tower model of its documentation: examination as in `context`, and attraction from the features
              of the document by its deep cross network at its defaults

The last tenth of the pages decides when to stop, by their likelihood. Pages come in random order, 256 at a time as in
its example; fewer in a small log, which otherwise would come to the last epoch long before it has been fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from clax import PositionBasedModel, Trainer
from clax.parameters import DeepCrossParameterConfig, DeepParameterConfig
from exchange import FEATURES, TEST_CONTEXTS, Sessions, measure, read_sessions
from flax import nnx
from optax import adamw

BATCH, RATE, EPOCHS = 256, 0.003, 50
STEPS = 80
"""Steps of an epoch below which batches get smaller."""
VALIDATION = 0.1
"""Share of the pages, the last ones, that decide when to stop."""
INPUTS = {"pbm": (), "context": ("examination",), "towers": ("examination", "document")}
"""What each model reads besides positions and numbers of documents."""


@dataclass(eq=False)
class Pages:
    """Batches of pages, in a new random order in each epoch where `random` is given; the last one may be smaller."""

    log: Sessions
    pages: np.ndarray
    inputs: tuple[str, ...]
    features: np.ndarray
    size: int
    random: np.random.Generator | None = None

    def __len__(self) -> int:
        return -(-len(self.pages) // self.size)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        order = self.pages if self.random is None else self.random.permutation(self.pages)
        for start in range(0, len(order), self.size):
            yield self.batch(order[start : start + self.size])

    def batch(self, pages: np.ndarray) -> dict[str, np.ndarray]:
        """Return a batch as CLAX wants it; 0 would be padding, so numbers start at 1."""
        doc = self.log.doc[pages]
        batch = {
            "positions": np.broadcast_to(np.arange(1, doc.shape[1] + 1), doc.shape),
            "query_doc_ids": doc + 1,
            "clicks": self.log.click[pages].astype(np.float32),
            "mask": np.ones(doc.shape, bool),
        }
        if "examination" in self.inputs:
            batch["examination_features"] = examination_features(self.log.contexts[self.log.query[pages]], doc.shape[1])
        if "document" in self.inputs:
            batch["query_doc_features"] = self.features[doc]
        return batch


def examination_features(contexts: np.ndarray, positions: int) -> np.ndarray:
    """Return position (one-hot) and context side by side, [n, K, K + F]."""
    shape = (len(contexts), positions)
    place = np.broadcast_to(np.eye(positions, dtype=np.float32), (*shape, positions))
    context = np.broadcast_to(contexts[:, None].astype(np.float32), (*shape, contexts.shape[1]))
    return np.concatenate([place, context], axis=2)


def make_model(model: str, log: Sessions, features: int, seed: int) -> PositionBasedModel:
    """Return an untrained model."""
    positions = log.doc.shape[1]
    towers = {
        "examination": DeepParameterConfig("examination_features", positions + log.contexts.shape[1]),
        "document": DeepCrossParameterConfig("query_doc_features", features),
    }
    return PositionBasedModel(
        positions=positions,
        query_doc_pairs=int(log.doc.max()) + 1,
        examination=towers["examination"] if "examination" in INPUTS[model] else None,
        attraction=towers["document"] if "document" in INPUTS[model] else None,
        rngs=nnx.Rngs(seed),
    )


def estimate(folder: Path, model: str, seed: int) -> np.ndarray:
    """Return the examination of the test contexts."""
    log = read_sessions(folder)
    features = np.load(folder / FEATURES, mmap_mode=None if "document" in INPUTS[model] else "r")
    training, validation = np.split(np.arange(len(log.doc)), [int(len(log.doc) * (1 - VALIDATION))])
    click_model = make_model(model, log, features.shape[1], seed)
    size = max(2, min(BATCH, len(training) // STEPS))
    Trainer(adamw(RATE), epochs=EPOCHS).train(
        click_model,
        Pages(log, training, INPUTS[model], features, size, np.random.default_rng(seed)),
        Pages(log, validation, INPUTS[model], features, BATCH),
    )
    positions = log.doc.shape[1]
    asked = {"positions": np.arange(1, positions + 1)[None]}
    if "examination" in INPUTS[model]:
        asked = {"examination_features": examination_features(np.load(folder / TEST_CONTEXTS), positions)}
    found = np.asarray(click_model.examination.log_prob(asked), float).reshape(-1, positions)
    return np.exp(found - found[:, :1])


if __name__ == "__main__":
    measure(estimate, ["clax-models", "jax", "flax", "torch"])
