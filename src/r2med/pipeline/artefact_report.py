"""The findings of an artefact audit as data: figures, thresholds with their reasons, verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from ..core.columns import grouped
from ..core.table import Table
from ..scoring.intervals import Estimate
from .artefact_checks import Twins

Verdict = Literal["passes", "fails", "cannot be told"]
Check = Literal[
    "classifier-judged", "classifier-bm25", "sort-by-word-length", "sort-by-length", "answer-as-query", "quoting",
    "twins", "order", "words-alone", "pairs-apart", "detectable", "unjudged",
]  # fmt: skip

MOST_AUC = 0.60
MOST_GAIN = 0.0
MOST_WITH_ANSWER = 0.80
MOST_QUOTING = 0.0
MOST_TWINS = 0.05
MOST_ORDER = 0.30
FEWEST_QUERIES = 10
CHANCE = 0.5  # of an AUC; of a correlation 0


class Threshold(msgspec.Struct, frozen=True, omit_defaults=True):
    """The most that a figure may be, or the least, and why."""

    most: float | None
    reason: str
    least: float | None = None

    @property
    def text(self) -> str:
        """The limits as a cell of a table."""
        most = "" if self.most is None else f"{self.most:.2f}"
        return most if self.least is None else f"{self.least:.2f} to {most}" if most else f"at least {self.least:g}"


_CLASSIFIER = (
    "thirty queries with three documents of either class stay below it by chance 98 times in 100, and a reranker that "
    "never reads the query gains from what lies above it"
)
_SORTING = "an order that does not read the query must not beat one that does: the interval of the gain reaches 0"
THRESHOLDS: dict[Check, Threshold] = {
    "classifier-judged": Threshold(MOST_AUC, _CLASSIFIER),
    "classifier-bm25": Threshold(MOST_AUC, _CLASSIFIER),
    "sort-by-word-length": Threshold(MOST_GAIN, _SORTING),
    "sort-by-length": Threshold(MOST_GAIN, _SORTING),
    "answer-as-query": Threshold(
        MOST_WITH_ANSWER,
        "where the name of the answer finds nearly everything, a task measures one guess and nothing between a wrong "
        "one and a right one",
    ),
    "quoting": Threshold(
        MOST_QUOTING,
        "negatives that quote the query more often than positives were written from it: they are traps, not documents "
        "that happened to be there",
    ),
    "twins": Threshold(
        MOST_TWINS, "twins count one problem twice: at 5 % of the queries, intervals are about 2 % too narrow"
    ),
    "order": Threshold(
        MOST_ORDER, "documents that lie in the order of their queries are found by their place or id, without reading"
    ),
}
SYSTEM_THRESHOLDS: dict[Check, Threshold] = {
    "words-alone": Threshold(
        0.40,
        "below, a benchmark was made against word matching; above, it leaves little to inference",
        least=0.15,
    ),
    "pairs-apart": Threshold(None, "a benchmark that tells none of its systems apart measures nothing", least=2),
    "detectable": Threshold(
        0.04, "systems of one kind differ by a few points: what shows only larger differences cannot order them"
    ),
    "unjudged": Threshold(0.10, "documents that nobody judged count as wrong, whatever they say"),
}
TITLES: dict[str, str] = {
    "classifier-judged": "Classifier, judged negatives",
    "classifier-bm25": "Classifier, BM25's top 20",
    "sort-by-word-length": "BM25 sorted by word length",
    "sort-by-length": "BM25 sorted by length",
    "answer-as-query": "BM25, the answer as query",
    "quoting": "Negatives that quote",
    "twins": "Queries with a twin",
    "order": "Documents in queries' order",
    "words-alone": "BM25 over all tasks",
    "pairs-apart": "Pairs of systems told apart",
    "detectable": "Detectable difference",
    "unjudged": "Top ten unjudged, at most",
}
DIGITS: dict[Check, int] = {"pairs-apart": 0, "detectable": 3}  # others two


LEGEND = (
    "Classifier: AUC within queries of a classifier that never sees the query.",
    "Sorted: gain in nDCG@10 over BM25, the better direction.",
    "The answer as query: nDCG@10.",
    "Negatives that quote: share of them with words of the query, less positives'.",
    "Twins: share of queries.",
    "Order: correlation of the places of queries and of relevant documents.",
)
CALIBRATION_LEGEND = (
    "BM25, differences: nDCG@10, mean of the tasks. Detectable: the true difference",
    "that these queries show in four of five cases, of the pair that needs most.",
    "Unjudged: of the system and task with the most.",
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One check: its figure, the limit that decides, and the verdict."""

    check: Check
    verdict: Verdict
    value: float | None  # None where it could not be measured
    low: float | None
    high: float | None
    queries: int
    threshold: float
    why: str  # what decided

    @property
    def title(self) -> str:
        return TITLES[self.check]


class Separation(msgspec.Struct, frozen=True, kw_only=True):
    """How well a classifier without the query tells relevant documents from others.

    `auc` is the mean over queries of the AUC within each query, and what the verdict looks at: a system orders the
    documents of one query, and scores of classifiers from different folds are not on one scale. `pooled` compares all
    positives with all negatives, whichever query they belong to.
    """

    negatives_are: Literal["judged", "bm25"]
    queries: int
    groups: int  # of queries that share a relevant document; folds and resamples take whole groups
    folds: int
    positives: int
    negatives: int
    auc: Estimate
    pooled: Estimate
    parts: dict[str, Estimate]  # the same classifier over one aspect alone
    words_of_relevant: list[str]  # those with the largest weights, either way
    words_of_others: list[str]


class Sorting(msgspec.Struct, frozen=True, kw_only=True):
    """BM25's first documents in an order that does not read the query."""

    by: Literal["word length", "length"]
    first: Literal["longest", "shortest"]
    ndcg_at_10: float
    gain: Estimate  # over BM25, query by query


class AnswerCeiling(msgspec.Struct, frozen=True, kw_only=True):
    """BM25 with the answer as query: the ceiling of naming the diagnosis."""

    ndcg_at_10: Estimate
    with_question: float  # BM25's nDCG@10 on the same queries as they are asked


class QuotingRates(msgspec.Struct, frozen=True, kw_only=True):
    """How often documents share a run of words with the query they were judged for; means over queries."""

    width: int
    positives_rate: float  # of documents that share a run
    negatives_rate: float
    positives_share: float  # of the query's runs that stand in a document
    negatives_share: float
    difference: Estimate  # of the rates: negatives minus positives


class TaskArtefacts(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about one task; what it has no data for is None or empty."""

    task: str
    fingerprint: str
    queries: int
    documents: int
    bm25_ndcg_at_10: float
    separations: list[Separation]
    sortings: list[Sorting]
    answers: AnswerCeiling | None
    quoting: QuotingRates | None
    twins: list[Twins]  # within the task
    findings: list[Finding]


class SystemCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """A system whose rankings ship with the tasks: its nDCG@10, and where most of its top ten is unjudged."""

    system: str
    ndcg_at_10: float  # mean of the tasks
    tasks: dict[str, float]
    unjudged_at_10: float
    most_unjudged: str  # the task of that share


class PairCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """The second system minus the first, mean of the tasks, and what such a pair could show."""

    systems: tuple[str, str]
    difference: float
    low: float
    high: float
    apart: bool  # the interval does not hold 0
    detectable: float | None
    detectable_by_query: float | None  # in the mean of all queries


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the tasks together can tell systems apart."""

    systems: list[SystemCalibration]
    pairs: list[PairCalibration]
    findings: list[Finding]


class ArtefactReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole artefact audit."""

    schema: int
    settings: dict[str, float | int | str]
    thresholds: dict[Check, Threshold]
    tasks: list[TaskArtefacts]
    overall: list[Finding]  # means over the tasks, every task alike; empty for a single task
    twins_across: list[Twins]
    calibration: Calibration | None = None  # None where no rankings ship with the tasks

    def tables(self) -> Iterator[Table]:
        """The findings for people, 80 columns wide: a table a task, and one for all of them."""
        for task in self.tasks:
            rows = []
            for finding in task.findings:
                rows.append(_row(finding))
                first = task.separations[0] if task.separations else None
                if first and finding.check == f"classifier-{first.negatives_are}":
                    rows += [_plain_row(f"  {name} alone", of_part) for name, of_part in first.parts.items()]
            told = f"{task.task}: {counted(task.findings)}, {task.queries:,} queries"
            yield Table(_COLUMNS, rows, unclear(task.findings), 1, told)
        if self.overall:
            told = f"All {len(self.tasks)} tasks, each counted alike: {counted(self.overall)}"
            yield findings_table(self.overall, told)
        if self.calibration:
            of = self.calibration.findings
            yield findings_table(of, f"Systems whose rankings ship with the tasks: {counted(of)}")


def findings_table(findings: list[Finding], title: str = "") -> Table:
    """A row for each check."""
    return Table(_COLUMNS, list(map(_row, findings)), unclear(findings), 1, title)


_COLUMNS = ("Check", "Value", "95 %", "Limit", "Verdict")


def _row(finding: Finding) -> list[str]:
    known = finding.low is not None and finding.high is not None
    interval = f"{finding.low:.2f} to {finding.high:.2f}" if known else "–"
    value = "–" if finding.value is None else f"{finding.value:.{DIGITS.get(finding.check, 2)}f}"
    return [finding.title, value, interval, (THRESHOLDS | SYSTEM_THRESHOLDS)[finding.check].text, finding.verdict]


def _plain_row(name: str, of: Estimate) -> list[str]:
    return [name, f"{of.value:.2f}", f"{of.low:.2f} to {of.high:.2f}", "", ""]


def counted(findings: list[Finding]) -> str:
    """How many checks of each verdict there are, in words."""
    failed, passed = (sum(f.verdict == verdict for f in findings) for verdict in ("fails", "passes"))
    rest = len(findings) - failed - passed
    return f"{failed} of {len(findings)} checks fail" + (f", {rest} cannot be told" if rest else "")


def unclear(findings: list[Finding]) -> str:
    """Why checks could not be told, for a caption."""
    reasons = grouped((finding.why, finding.title) for finding in findings if finding.verdict == "cannot be told")
    return " ".join(f"Cannot be told ({why}): {'; '.join(titles)}." for why, titles in reasons.items())


class Decision(NamedTuple):
    """A verdict and what decided."""

    verdict: Verdict
    why: str


def decide(of: Estimate, most: float, *, queries: int, chance: float | None = None, gain: bool = False) -> Decision:
    """Judge a figure against the most it may be.

    A gain fails where its whole interval lies above the threshold. Any other figure fails where it is above; with
    `chance`, only if its interval also excludes chance.
    """
    if queries < FEWEST_QUERIES:
        return Decision("cannot be told", f"{queries} queries; at least {FEWEST_QUERIES} are needed")
    if gain:
        above = of.low > most
        return Decision("fails" if above else "passes", f"the interval {'lies above' if above else 'reaches'} {most:g}")
    if of.value <= most:
        return Decision("passes", f"{of.value:.3f} is at most {most:g}")
    if chance is not None and of.low <= chance:
        return Decision("cannot be told", f"with {queries} queries the interval still holds chance, {chance:g}")
    return Decision("fails", f"{of.value:.3f} is above {most:g}")
