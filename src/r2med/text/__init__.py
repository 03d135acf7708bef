"""Text to terms."""

from .analyzers import ANALYZERS, Analyzer, get_analyzer, term_sets
from .terms import TermCounts, Vocabulary

__all__ = ["ANALYZERS", "Analyzer", "TermCounts", "Vocabulary", "get_analyzer", "term_sets"]
