"""Diagnosis: what a log identifies, and whether the assumptions hold in it.

ClickLog or Interventions ──► diagnose ──► Diagnosis, with its Findings
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
