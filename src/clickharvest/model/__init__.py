"""What a fitted model is: a curve, its parameters, and how sure they are. NumPy alone.

contexts ──► ContextEncoder ──► Curve ──► Propensities ──► Prediction
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
