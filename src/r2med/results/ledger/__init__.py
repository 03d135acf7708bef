"""The ledger: figures that others published, as data with source, date and protocol."""

from .book import Figure, Kind, Ledger, Source, ledger, read_ledger

__all__ = ["Figure", "Kind", "Ledger", "Source", "ledger", "read_ledger"]
