"""Reasoning before retrieval: texts made from queries, and how retrievers take them.

expander = get_expander("hyde:gpt4")
expansions = expander.expand(task)
searchable = apply(expansions, task, "lexical")
"""

from .diagnose import Diagnosis, diagnose, infer
from .generated import Settings
from .policy import POLICIES, Piece, Policy, apply, expanded_task, get_policy, policy_for, query_groups, separator_for
from .protocol import Expander, Plan
from .specs import GENERATING, METHODS, get_expander, with_chat
from .values import Expansion, Expansions
from .vectors import group_vectors, retrieve_groups

__all__ = [
    "GENERATING",
    "METHODS",
    "POLICIES",
    "Diagnosis",
    "Expander",
    "Expansion",
    "Expansions",
    "Piece",
    "Plan",
    "Policy",
    "Settings",
    "apply",
    "diagnose",
    "expanded_task",
    "get_expander",
    "get_policy",
    "group_vectors",
    "infer",
    "policy_for",
    "query_groups",
    "retrieve_groups",
    "separator_for",
    "with_chat",
]
