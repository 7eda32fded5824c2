from .clipping import effective_sample_size as effective_sample_size
from .clipping import ips_weights as ips_weights
from .clipping import vanishing_clip as vanishing_clip
from .reports import OutcomeReport as OutcomeReport
from .reports import WeightReport as WeightReport
from .weighing import Weights as Weights
from .weighing import weigh as weigh
from .weighing import weigh_to_parquet as weigh_to_parquet
