"""Experiments as data, and running them."""

from .run import Outcome, by_system, check_writable, run_experiment
from .system import System, systems_from

__all__ = ["Outcome", "System", "by_system", "check_writable", "run_experiment", "systems_from"]
