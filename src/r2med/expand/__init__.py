"""Reasoning before retrieval: texts made from queries, and how retrievers take them.

expansions = expanders.make(expanders.parse("hyde:gpt4"), build).expand(task)
queries, policy = queries_for(retriever, task, expansions)
"""

from ..llm import Cost
from .contract import Chain, Expander, Expansion, Expansions, as_expander, expanders
from .diagnose import Diagnosis, diagnose, infer, judge
from .policy import POLICIES, Policy, expanded_queries, policy_for, queries_for

__all__ = [
    "POLICIES",
    "Chain",
    "Cost",
    "Diagnosis",
    "Expander",
    "Expansion",
    "Expansions",
    "Policy",
    "as_expander",
    "diagnose",
    "expanded_queries",
    "expanders",
    "infer",
    "judge",
    "policy_for",
    "queries_for",
]
