"""How good a ranking is."""

from .evaluation import Evaluation, rescored, score
from .measures import CUTOFFS, MAIN, STANDARD, USUAL, Measure, parse_measures

__all__ = ["CUTOFFS", "MAIN", "STANDARD", "USUAL", "Evaluation", "Measure", "parse_measures", "rescored", "score"]
