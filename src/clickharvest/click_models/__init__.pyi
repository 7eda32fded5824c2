from .base import ClickModel as ClickModel
from .base import FittedModel as FittedModel
from .base import WeighReport as WeighReport
from .loading import load_model as load_model
from .registry import CLICK_MODELS as CLICK_MODELS
