from .places import Places as Places
