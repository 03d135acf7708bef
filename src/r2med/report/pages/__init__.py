"""Task and group pages: Markdown made from data."""

from .group import group_page
from .task import task_page
from .write import write_pages

__all__ = ["group_page", "task_page", "write_pages"]
