"""What a fitted model is: a curve, its parameters, and how sure they are. NumPy alone.

contexts ──► ContextEncoder ──► Curve ──► Propensities ──► Prediction

`curves` holds one file per curve, `trace` turns their formulas into programs. `intervals` makes standard deviations of
draws, `support` and `budget` the state of each number. `storage` and `loading` are the file format, with `fit_info` and
`provenance` as its records. `differences`, `summary` and `cautions` compare and describe models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
