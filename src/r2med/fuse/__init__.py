"""One ranking from several: by ranks, by scores, with weights that were never tuned on what they are judged by."""

from .combine import METHODS, NORMALISATIONS, Method, Normalisation, combine
from .folds import Fold, Tuned, tune_weights
from .rrf import RRF_K, reciprocal_rank

__all__ = [
    "METHODS",
    "NORMALISATIONS",
    "RRF_K",
    "Fold",
    "Method",
    "Normalisation",
    "Tuned",
    "combine",
    "reciprocal_rank",
    "tune_weights",
]
