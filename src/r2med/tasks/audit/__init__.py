"""Leakage and hygiene: what a score may owe to something else than retrieval."""

from .audit import AuditSettings, audit
from .findings import AuditReport, Flag, SharedTexts, Subset, SystemAudit, TaskAudit
from .outside import OutsideTexts, read_outside
from .traps import LexicalTrap, clearest_traps, lexical_traps

__all__ = [
    "AuditReport",
    "AuditSettings",
    "Flag",
    "LexicalTrap",
    "OutsideTexts",
    "SharedTexts",
    "Subset",
    "SystemAudit",
    "TaskAudit",
    "audit",
    "clearest_traps",
    "lexical_traps",
    "read_outside",
]
