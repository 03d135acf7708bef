"""Results for people to read."""

from .scores import ScoreTable, as_json, caption, cells, headers, markdown, score_table

__all__ = ["ScoreTable", "as_json", "caption", "cells", "headers", "markdown", "score_table"]
