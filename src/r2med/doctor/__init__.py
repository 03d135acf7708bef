"""What is installed on this machine, what works, and what is ready to run. Looks, tries little, changes nothing."""

from .diagnosis import diagnose
from .findings import Check, Diagnosis, Extra, Place, Status

__all__ = ["Check", "Diagnosis", "Extra", "Place", "Status", "diagnose"]
