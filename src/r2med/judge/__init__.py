"""From a folder of documents to a benchmark: pools, judgments, agreement, checks, and the finished task."""

from .journal import Entry, Journal, JudgeKind
from .project import Pooled, Project, Settings, create_project, open_project

__all__ = ["Entry", "Journal", "JudgeKind", "Pooled", "Project", "Settings", "create_project", "open_project"]
