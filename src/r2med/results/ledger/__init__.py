"""The ledger: figures that others published, as data with source, date and protocol."""

from .figures import Figure, Source
from .reading import Ledger, ledger, read_ledger

__all__ = ["Figure", "Ledger", "Source", "ledger", "read_ledger"]
