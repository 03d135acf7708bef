"""Everything people look at: tables, plots, pages, the web app and the one-file report."""

from .scores import ScoreTable, as_json, score_table

__all__ = ["ScoreTable", "as_json", "score_table"]
