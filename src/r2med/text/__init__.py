"""Text to terms."""

from .analyzers import ANALYZERS, Analyzer, TermCounts, Vocabulary, get_analyzer, term_sets

__all__ = ["ANALYZERS", "Analyzer", "TermCounts", "Vocabulary", "get_analyzer", "term_sets"]
