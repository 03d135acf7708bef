"""How good a ranking is."""

from .evaluation import Evaluation, evaluate_run
from .measures import CUTOFFS, MAIN, STANDARD, Measure, parse_measures

__all__ = ["CUTOFFS", "MAIN", "STANDARD", "Evaluation", "Measure", "evaluate_run", "parse_measures"]
