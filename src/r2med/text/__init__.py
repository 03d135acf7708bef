"""Text to terms."""

from .analyzers import ANALYZERS, Analyzer, get_analyzer
from .terms import TermCounts, Vocabulary

__all__ = ["ANALYZERS", "Analyzer", "TermCounts", "Vocabulary", "get_analyzer"]
