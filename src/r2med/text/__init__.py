"""Text to terms."""

from .analyzers import TermCounts, Vocabulary, get_analyzer, term_sets

__all__ = ["TermCounts", "Vocabulary", "get_analyzer", "term_sets"]
