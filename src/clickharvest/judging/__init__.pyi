from .judgments import Judgments as Judgments
from .judgments import judge as judge
from .shrinkage import Shrunk as Shrunk
from .shrinkage import shrink as shrink
from .writing import write_judgments as write_judgments
