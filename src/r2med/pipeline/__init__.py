"""Experiments as data, and running them."""

from .experiment import Builder, Experiment, SystemSpec, ladder, read_experiment, systems_from
from .fusing import FUSIONS, Fusion
from .run import Outcome, by_system, check_writable, run_experiment
from .system import Reranking, System

__all__ = [
    "FUSIONS",
    "Builder",
    "Experiment",
    "Fusion",
    "Outcome",
    "Reranking",
    "System",
    "SystemSpec",
    "by_system",
    "check_writable",
    "ladder",
    "read_experiment",
    "run_experiment",
    "systems_from",
]
