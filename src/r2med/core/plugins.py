"""Plug-ins: retrievers, rerankers and expanders that other packages offer as entry points.

[project.entry-points."r2med.retrievers"]
char-ngrams = "my_package:CharNgrams"

They are found by their metadata alone and imported when somebody names one: a broken one breaks nothing else.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .addresses import made
from .containing import contained
from .errors import ModelError, R2MedError, UsageError
from .objects import told

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["retriever", "reranker", "expander"]
GROUPS: dict[Kind, str] = {
    "retriever": "r2med.retrievers",
    "reranker": "r2med.rerankers",
    "expander": "r2med.expanders",
}
RESERVED: dict[Kind, tuple[str, ...]] = {
    "retriever": (),
    "reranker": ("maxsim", "rankgpt", "reasoning", "setwise", "yesno"),
    "expander": ("hyde", "query2doc", "lamer", "search-o1", "search-r1", "concepts", "oracle"),
}
"""Names of ours besides those of models and of BM25: no plug-in takes them over."""


class Plugin(NamedTuple):
    """One entry point, not loaded."""

    name: str
    kind: Kind
    distribution: str
    version: str
    entry: EntryPoint

    @property
    def label(self) -> str:
        """Whose it is and where it lies, for an error."""
        return f"plug-in {self.name!r} of {self.distribution} ({self.entry.value})"

    @property
    def found(self) -> bool:
        """Whether its package can be imported at all; nothing of it runs to find out."""
        try:
            return find_spec(self.entry.module.partition(".")[0]) is not None
        except (ImportError, ValueError):
            return False

    def make(self) -> Any:
        """Import it and call it where it is a class or factory."""
        with contained(self.label, "being loaded"):
            try:
                loaded = self.entry.load()
            except R2MedError:
                raise
            except (Exception, SystemExit) as error:
                raise ModelError(f"{self.label} cannot be loaded ({told(error)})") from error
        return made(loaded, self.label)


def plugins(kind: Kind | None = None) -> list[Plugin]:
    """What the packages installed here offer, sorted by name."""
    from importlib.metadata import entry_points  # brings the whole of email along: not for every command

    found = {
        Plugin(entry.name, which, *_owner(entry), entry)
        for which, group in GROUPS.items()
        if kind in (None, which)
        for entry in entry_points(group=group)
    }
    return sorted(found, key=lambda p: (list(GROUPS).index(p.kind), p.name, p.distribution))


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """The plug-in of a name; two packages that offer the same name are an error, never a choice by chance."""
    offers = [plugin for plugin in plugins(kind) if plugin.name == name]
    if len({p.distribution for p in offers}) > 1:
        raise UsageError(f"{kind} {name!r} is offered by {' and by '.join(p.distribution for p in offers)}: remove one")
    return offers[0] if offers else None


def _owner(entry: EntryPoint) -> tuple[str, str]:
    if entry.dist is None:
        return "an unknown package", ""
    return entry.dist.name, entry.dist.version
