"""Leakage and hygiene: what a score may owe to something else than retrieval."""

from .audit import AuditSettings, audit
from .findings import LEVELS, Across, AuditReport, CopyCount, CrossPair, Flag, Subset, SystemAudit, TaskAudit
from .lures import Lure, find_lures
from .outside import OutsideTexts, read_outside
from .tendencies import Tendencies, tendencies

__all__ = [
    "LEVELS",
    "Across",
    "AuditReport",
    "AuditSettings",
    "CopyCount",
    "CrossPair",
    "Flag",
    "Lure",
    "OutsideTexts",
    "Subset",
    "SystemAudit",
    "TaskAudit",
    "Tendencies",
    "audit",
    "find_lures",
    "read_outside",
    "tendencies",
]
