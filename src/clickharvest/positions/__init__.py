"""Positions: where results stand, be it a list, places that are none, or the states of those who browse one.

columns of a log ──► Places ──► numbers from 1, which all rooms below know
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
