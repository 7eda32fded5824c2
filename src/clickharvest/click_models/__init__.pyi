from .base import ClickModel as ClickModel
from .base import FittedModel as FittedModel
from .base import WeighReport as WeighReport
from .choosing import ModelChoice as ModelChoice
from .choosing import choose_click_model as choose_click_model
from .loading import load_model as load_model
from .registry import CLICK_MODELS as CLICK_MODELS
