"""Examination curves: how log p_k(x) depends on the position k and the context x.

A curve is one file with one class, and nothing else: it is in `CURVES` under its `name`, and from there it is fitted,
saved, loaded, scored, exported, drawn and offered on the command line. Its formula is written once, against a
namespace `xp` of array functions: `numpy` for scoring, and a tracer (`clickharvest.model.trace`) for gradients and for
what runs without Python.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
