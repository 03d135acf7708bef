"""Experiments as data, and running them."""

from .experiment import Experiment, ablations, default_systems, read_experiment
from .run import Executor, check_writable, get_executor, run_experiment
from .system import Builder, Reranking, System, SystemSpec

__all__ = [
    "Builder",
    "Executor",
    "Experiment",
    "Reranking",
    "System",
    "SystemSpec",
    "ablations",
    "check_writable",
    "default_systems",
    "get_executor",
    "read_experiment",
    "run_experiment",
]
