from .cells import Cells as Cells
from .expectation import em as em
from .expectation import regression_em as regression_em
from .generative import generative_cpbm as generative_cpbm
from .ratios import adjacent_chain as adjacent_chain
from .ratios import click_rates as click_rates
from .ratios import pivot_one as pivot_one
from .ratios import swap_ratio as swap_ratio
