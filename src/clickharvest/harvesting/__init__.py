"""Interventions: documents that natural variation has shown at several positions.

ClickLog (+ a design) ──► harvest ──► Interventions
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
