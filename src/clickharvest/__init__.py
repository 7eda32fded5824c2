"""Ordinary click logs in, examination propensities out.

    logs ──► harvest ──► diagnose ──► fit ──► propensities

1. `read_log` (or `read_export`, for known exports) opens a click log where it lies and checks it.
2. `diagnose` tells whether natural variation in it reveals examination, and tests the assumptions.
3. `harvest` collects the interventions: documents seen at several positions.
4. `PBM` and `CPBM` estimate examination from them, without or with context, with error bars.
5. `Propensities` is the result: it scores contexts, is saved to a file, and needs NumPy only.

>>> from clickharvest import diagnose, harvest, read_log
>>> from clickharvest.simulate import simulate_ab_log
>>> log = read_log(simulate_ab_log(pages=2000)[0], context=["device"])
>>> diagnose(log).identified
True
>>> print(harvest(log))
Interventions: 1,627 units, 3,638 rows, 2,630 clicks, positions 1-10, realised exposures, context device

Names are imported when first used, so that the parts which need no engine also run where none is installed.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
