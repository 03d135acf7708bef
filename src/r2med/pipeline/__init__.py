"""Experiments as data, and running them."""

from .executors import EXECUTORS, Executor, get_executor
from .experiment import Builder, Experiment, SystemSpec, ladder, read_experiment, systems_from
from .fusing import FUSIONS, Fusion
from .run import Outcome, by_system, check_writable, run_experiment
from .system import Reranking, System

__all__ = [
    "EXECUTORS",
    "FUSIONS",
    "Builder",
    "Executor",
    "Experiment",
    "Fusion",
    "Outcome",
    "Reranking",
    "System",
    "SystemSpec",
    "by_system",
    "check_writable",
    "get_executor",
    "ladder",
    "read_experiment",
    "run_experiment",
    "systems_from",
]
