"""How a model is found: samples of interventions, objectives, optimisers, selection, uncertainty.

Interventions ──► Sample ──► curve × objective ──► PBM · CPBM ──► Propensities
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
