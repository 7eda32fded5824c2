"""Click models: how clicks come about, each from the log to a model file and from there to weights.

A click model is one file: this folder is the list of them. A module `NAME.py` with a subclass of `ClickModel` whose
`name` is `NAME` is all that one needs: it is offered as `fit --model NAME`, and `load_model` reads its files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
