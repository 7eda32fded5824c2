"""IPS weights: the inverse propensity of every row of a log, computed inside the engine.

log + propensities ──► weigh ──► Weights ──► the log with its weights as further columns
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
