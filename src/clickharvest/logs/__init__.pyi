from .click_log import ClickLog as ClickLog
from .engines import DuckDBEngine as DuckDBEngine
from .engines import Engine as Engine
from .engines import SparkEngine as SparkEngine
from .formats.ubi import read_ubi as read_ubi
from .reading import read_log as read_log
