from .diagnosing import Diagnosis as Diagnosis
from .diagnosing import diagnose as diagnose
from .findings import Finding as Finding
