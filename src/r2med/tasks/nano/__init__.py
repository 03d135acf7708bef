"""Nano tasks: small pools that keep every positive, with ranked candidates beside them."""

from .figures import ROLES, Contrast, GroupFigures, NanoProfile, ProfileFigures, TaskFigures, group
from .inspected import Inspected, Tercile
from .manifest import Manifest, TaskManifest, read_manifest
from .names import role_of, split_name
from .pool import FILLS, Pool, PoolSettings, build_pool
from .shape import PublishedShape, published_shapes

__all__ = [
    "FILLS",
    "ROLES",
    "Contrast",
    "GroupFigures",
    "Inspected",
    "Manifest",
    "NanoProfile",
    "Pool",
    "PoolSettings",
    "ProfileFigures",
    "PublishedShape",
    "TaskFigures",
    "TaskManifest",
    "Tercile",
    "build_pool",
    "group",
    "published_shapes",
    "read_manifest",
    "role_of",
    "split_name",
]
