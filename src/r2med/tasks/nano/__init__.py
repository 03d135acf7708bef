"""Nano tasks: small pools that keep every positive, with ranked candidates beside them."""

from .figures import ROLES, Contrast, GroupFigures, Inspected, NanoProfile, ProfileFigures, TaskFigures, Tercile, group
from .folder import Manifest, Metadata, TaskManifest, read_manifest, read_metadata, role_of, split_name
from .pool import FILLS, Pool, PoolSettings, build_pool

__all__ = [
    "FILLS",
    "ROLES",
    "Contrast",
    "GroupFigures",
    "Inspected",
    "Manifest",
    "Metadata",
    "NanoProfile",
    "Pool",
    "PoolSettings",
    "ProfileFigures",
    "TaskFigures",
    "TaskManifest",
    "Tercile",
    "build_pool",
    "group",
    "read_manifest",
    "read_metadata",
    "role_of",
    "split_name",
]
