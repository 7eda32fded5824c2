"""Click logs: where they lie, what their columns mean, and whether their rows can be that.

source ──► read_log · read_export · read_two_files ──► ClickLog on an engine
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
