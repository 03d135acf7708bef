"""Reasoning-driven medical retrieval: run, score, explain and publish experiments.

Five lines from import to table:

    import r2med
    task = r2med.load("mini/MedQA-Diag")
    run = r2med.BM25().retrieve(task)
    print(r2med.score(run, task).means)
    r2med.run("bm25", "bm25-lucene", tasks="mini")
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api.data import (
        add_collection,
        audit,
        build_nano,
        convert,
        download,
        export_training,
        list_tasks,
        nano_fidelity,
        nano_profile,
        remove_collection,
        stats,
        validate,
        write_pages,
    )
    from .api.experiments import (
        Scores,
        diagnose,
        evaluate,
        expand,
        fuse,
        plan,
        rerank,
        run,
        score,
        search,
        systems,
        tune,
    )
    from .api.judging import (
        judge_agree,
        judge_check,
        judge_finish,
        judge_plan,
        judge_pool,
        judge_run,
        judge_serve,
        relabel,
    )
    from .api.machine import (
        cache_entries,
        check_installation,
        describe_model,
        describe_protocol,
        fetch_model,
        fetch_protocol,
        list_experiments,
        list_models,
        list_protocols,
        model_folder,
        prune_cache,
        quickstart,
        recommend,
        serve_command,
        verify_cache,
        wait_for_server,
    )
    from .api.publish import (
        add_bundle,
        build_board,
        check_bundle,
        export_beir,
        export_hub,
        export_ledger,
        export_mteb,
        export_trec,
        pack_bundle,
        view,
        write_report,
    )
    from .api.results import (
        compare,
        compare_stored,
        design,
        latex_tables,
        leaderboard,
        per_query,
        plot_pareto,
        plot_ranks,
        plot_scatter,
        plot_scores,
        plot_truncation,
        reproduce,
    )
    from .core import Document, Documents, Qrels, Query, R2MedError, Run, Task
    from .core.options import Options
    from .core.queries import Queries
    from .core.spec import Spec
    from .pipeline import SystemSpec
    from .retrieve import BM25, get_retriever
    from .scoring import Evaluation, Measure
    from .tasks import read_qrels, read_run, write_run
    from .tasks.load import load, load_all

_HOMES = {
    "api.data": "add_collection audit build_nano convert download export_training list_tasks nano_fidelity "
    "nano_profile remove_collection stats validate write_pages",
    "api.experiments": "Scores diagnose evaluate expand fuse plan rerank run score search systems tune",
    "api.judging": "judge_agree judge_check judge_finish judge_plan judge_pool judge_run judge_serve relabel",
    "api.machine": "cache_entries check_installation describe_model describe_protocol fetch_model fetch_protocol "
    "list_experiments list_models list_protocols model_folder prune_cache quickstart recommend serve_command "
    "verify_cache wait_for_server",
    "api.publish": "add_bundle build_board check_bundle export_beir export_hub export_ledger export_mteb export_trec "
    "pack_bundle view write_report",
    "api.results": "compare compare_stored design latex_tables leaderboard per_query plot_pareto plot_ranks "
    "plot_scatter plot_scores plot_truncation reproduce",
    "core": "Document Documents Qrels Query R2MedError Run Task",
    "core.options": "Options",
    "core.queries": "Queries",
    "core.spec": "Spec",
    "pipeline": "SystemSpec",
    "retrieve": "BM25 get_retriever",
    "scoring": "Evaluation Measure",
    "tasks": "load load_all read_qrels read_run write_run",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "BM25",
    "Document",
    "Documents",
    "Evaluation",
    "Measure",
    "Options",
    "Qrels",
    "Queries",
    "Query",
    "R2MedError",
    "Run",
    "Scores",
    "Spec",
    "SystemSpec",
    "Task",
    "__version__",
    "add_bundle",
    "add_collection",
    "audit",
    "build_board",
    "build_nano",
    "cache_entries",
    "check_bundle",
    "check_installation",
    "compare",
    "compare_stored",
    "convert",
    "describe_model",
    "describe_protocol",
    "design",
    "diagnose",
    "download",
    "evaluate",
    "expand",
    "export_beir",
    "export_hub",
    "export_ledger",
    "export_mteb",
    "export_training",
    "export_trec",
    "fetch_model",
    "fetch_protocol",
    "fuse",
    "get_retriever",
    "judge_agree",
    "judge_check",
    "judge_finish",
    "judge_plan",
    "judge_pool",
    "judge_run",
    "judge_serve",
    "latex_tables",
    "leaderboard",
    "list_experiments",
    "list_models",
    "list_protocols",
    "list_tasks",
    "load",
    "load_all",
    "model_folder",
    "nano_fidelity",
    "nano_profile",
    "pack_bundle",
    "per_query",
    "plan",
    "plot_pareto",
    "plot_ranks",
    "plot_scatter",
    "plot_scores",
    "plot_truncation",
    "prune_cache",
    "quickstart",
    "read_qrels",
    "read_run",
    "recommend",
    "relabel",
    "remove_collection",
    "reproduce",
    "rerank",
    "run",
    "score",
    "search",
    "serve_command",
    "stats",
    "systems",
    "tune",
    "validate",
    "verify_cache",
    "view",
    "wait_for_server",
    "write_pages",
    "write_report",
    "write_run",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import r2med` stays quick."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """The package, where `expand`, `fuse` and `rerank` are functions, also once the rooms of those names are imported.

    Importing a room sets it as an attribute here, which would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
