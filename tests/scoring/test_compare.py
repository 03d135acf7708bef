from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

from r2med.core import UsageError
from r2med.core.table import p_value
from r2med.scoring.compare import Comparison, Difference, Pair, compare, most_moved
from r2med.scoring.intervals import Settings
from r2med.scoring.tables import comparison_tables

from .examples import drawn, scores_of


def test_every_line_of_a_pair() -> None:
    scores = drawn(2, (30, 12))
    (pair,) = compare(scores).pairs
    assert (pair.first, pair.second) == ("s0", "s1")
    for task, line in zip(scores.tasks, pair.tasks.values(), strict=True):
        difference = task.scores[1] - task.scores[0]
        assert line.difference == pytest.approx(difference.mean())
        assert line.low < line.difference < line.high
        assert (line.wins, line.losses) == ((difference > 1e-12).sum(), (difference < -1e-12).sum())
        assert line.wins + line.ties + line.losses == line.n == len(difference)
    means = [line.difference for line in pair.tasks.values()]
    assert pair.macro.difference == pytest.approx(np.mean(means))
    assert pair.query_weighted.difference == pytest.approx((30 * means[0] + 12 * means[1]) / 42)
    assert pair.macro.n == 42
    assert [line.exact for line in pair.tasks.values()] == [False, True]


def test_the_correction_is_over_tasks_and_pairs() -> None:
    scores = drawn(3, (25, 25))
    pairs = compare(scores).pairs
    assert [(p.first, p.second) for p in pairs] == [("s0", "s1"), ("s0", "s2"), ("s1", "s2")]
    alone = compare(scores_of(*[m[:2] for m in scores.matrices])).pairs[0]
    for name, line in pairs[0].tasks.items():
        assert line.p == pytest.approx(alone.tasks[name].p, abs=0.01)
        assert line.p_adjusted > alone.tasks[name].p_adjusted > alone.tasks[name].p
    assert alone.macro.p_adjusted == alone.macro.p
    assert pairs[0].macro.p_adjusted > pairs[0].macro.p


def test_a_real_difference_is_found_and_a_null_one_is_not() -> None:
    rng = np.random.default_rng(1)
    easy = rng.beta(0.6, 1.4, size=150)
    noise = rng.normal(0.0, 0.1, size=(2, 150))
    noise -= noise.mean(axis=1, keepdims=True)  # one system is better by 0.06, the other by exactly nothing
    found = compare(scores_of(np.stack((easy, easy + noise[0], easy + noise[1] + 0.06))))
    by_name = {(p.first, p.second): p.macro for p in found.pairs}
    assert by_name["s0", "s2"].different
    assert by_name["s0", "s2"].low > 0
    assert not by_name["s0", "s1"].different
    assert found.letters == {"s2": "a", "s0": "b", "s1": "b"}
    assert found.tie_groups == {"s2": 1, "s0": 2, "s1": 2}
    assert {name: (r.low, r.high) for name, r in found.ranks.items()} == {"s2": (1, 1), "s0": (2, 3), "s1": (2, 3)}


def test_identical_systems() -> None:
    scores = np.random.default_rng(0).random((1, 20))
    (pair,) = compare(scores_of(np.concatenate((scores, scores)))).pairs
    line = pair.tasks["t0"]
    assert (line.difference, line.p, line.t_test, line.detectable) == (0, 1.0, None, None)
    assert (line.low, line.high) == pytest.approx((-(1 - 0.025 ** (1 / 20)), 1 - 0.025 ** (1 / 20)))
    assert (line.wins, line.ties, line.losses, line.different, line.reachable) == (0, 20, 0, False, False)
    assert pair.moved == []


def test_an_incomplete_set_says_so() -> None:
    (pair,) = compare(scores_of(*drawn(2, (20, 20)).matrices, of_tasks=8)).pairs
    assert (pair.macro.tasks, pair.macro.of_tasks, pair.macro.complete) == (2, 8, False)


def test_the_queries_that_moved_most() -> None:
    scores = scores_of(np.array([[0.0, 0.5, 0.2], [0.9, 0.5, 0.1]]), np.array([[1.0], [0.0]]))
    moved = most_moved(scores, 0, 1)
    assert [(m.task, m.query_id) for m in moved] == [("t1", "t1-q0"), ("t0", "t0-q0"), ("t0", "t0-q2")]
    assert (moved[0].first, moved[0].second, moved[0].difference) == (1.0, 0.0, -1.0)
    many = scores_of(np.array([np.zeros(12), np.linspace(0.1, 1.0, 12)]))
    assert [m.query_id for m in most_moved(many, 0, 1)] == [f"t0-q{i}" for i in range(11, 1, -1)]


def test_seeded_and_settings_are_kept() -> None:
    scores, settings = drawn(2, (40,)), Settings(seed=5, level=0.9, resamples=500)
    assert compare(scores, settings) == compare(scores, settings)
    assert compare(scores, settings).settings is settings


def test_one_system_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match="at least two"):
        compare(drawn(1, (10,)))


def test_too_few_differing_queries_say_that_no_star_is_possible() -> None:
    matrix = np.zeros((2, 13))
    matrix[1, :5] = [0.2, 0.3, 0.1, 0.5, 0.4]
    line = compare(scores_of(matrix)).pairs[0].tasks["t0"]
    assert (line.p, line.reachable, line.detectable, line.different) == (0.0625, False, None, False)
    shown = comparison_tables(compare(scores_of(matrix)))[1]
    assert "cannot" in shown.rows[0]


def lines(found: Comparison) -> list[Difference]:
    return [line for p in found.pairs for line in (*p.tasks.values(), p.macro, p.query_weighted)]


def of_line(line: Difference, alpha: float) -> list[str]:
    """What one line says in two ways."""
    excluded = line.low > 0 or line.high < 0
    judged = line.equivalence
    checks = {
        "interval and p": excluded == (line.p < alpha),
        "p and corrected p": line.p <= line.p_adjusted,
        "star and corrected p": line.different == (line.p_adjusted < alpha),
        "star and interval": excluded or not line.different,
        "star that was said to be impossible": line.reachable or not line.different,
        "difference outside its interval": line.low <= line.difference <= line.high,
    }
    if judged is not None:
        inside = -judged.margin < line.low and line.high < judged.margin
        outside = line.low > judged.margin or line.high < -judged.margin
        checks |= {
            "verdict and star": (judged.verdict in ("better", "worse")) == line.different,
            "verdict and p": judged.equivalent == (judged.p < alpha),
            "an interval within the margin that is undecided": judged.equivalent or not inside,
            "an interval beyond the margin that is equivalent": not (judged.equivalent and outside),
            "better and not shown to be no worse": judged.not_worse or judged.verdict != "better",
            "worse by more than the margin and not worse": not (judged.not_worse and line.high < -judged.margin),
        }
    return [f"{name}: {line}" for name, right in checks.items() if not right]


def printed(cell: str) -> float:
    return 0.0 if cell.startswith("<") else float(cell.rstrip("* "))


def of_tables(found: Comparison) -> list[str]:
    """What the printed cells of the tables say in two ways, rounding included."""
    alpha, tables = 1.0 - found.settings.level, comparison_tables(found)
    letters = {row[0]: row[1] for row in tables[0].rows}
    ranks = {row[0]: [int(n) for n in re.findall(r"[0-9]+", row[2])] for row in tables[0].rows}
    wrong = [f"rank: {name} {rank}" for name, rank in ranks.items() if not rank[1] <= rank[0] <= rank[2]]
    for pair, table in zip(found.pairs, (t for t in tables if "p adjusted" in t.titles), strict=True):
        for row in table.rows:
            said = dict(zip(table.titles[4:], row[4:], strict=True))
            star, (p, adjusted) = "*" in said["p adjusted"], (printed(said[name]) for name in ("p", "p adjusted"))
            ends = re.findall(r"[-+0-9.]+", said[next(t for t in table.titles if t.endswith("interval"))])
            excluded = bool(ends) and ends[0][0] == ends[1][0] in ("+", "-")
            checks = {
                "star": star == (adjusted < alpha),
                "p": p <= adjusted,
                "interval": excluded == (p < alpha),
                "detectable": not (star and said["Detectable"] == "cannot"),
                "verdict": not table.titles[-1].startswith("Margin")
                or star == (row[-1].partition(",")[0] in ("better", "worse")),
            }
            wrong += [f"printed {name}: {row}" for name, right in checks.items() if not right]
        last = table.rows[-2 if len(table.rows) > 1 else 0]
        shared = set(letters[pair.first]) & set(letters[pair.second])
        if bool(shared) == ("*" in last[7]):
            wrong.append(f"printed letters: {last} {shared}")
    return wrong


def of_pair(pair: Pair, found: Comparison) -> list[str]:
    """What the tables say about a pair in two ways."""
    macro = {s.name: s.macro.value for s in found.systems}
    better, worse = sorted((pair.first, pair.second), key=lambda name: -macro[name])
    shared = set(found.letters[better]) & set(found.letters[worse])
    apart, asked = pair.macro.different, pair.populations
    checks = {
        "letters and star": bool(shared) != apart,
        "rank of the better": not apart or found.ranks[better].high < len(macro),
        "rank of the worse": not apart or found.ranks[worse].low > 1,
        "populations": asked is None
        or (
            (asked.other_queries.low, asked.other_queries.high) == (pair.macro.low, pair.macro.high)
            and asked.other_tasks.low <= asked.other_queries.low
            and asked.other_tasks.high >= asked.other_queries.high
        ),
    }
    return [f"{name}: {pair}" for name, right in checks.items() if not right]


def contradictions(found: Comparison) -> list[str]:
    """What the tables of one comparison say in two ways."""
    alpha = 1.0 - found.settings.level
    wrong = [problem for line in lines(found) for problem in of_line(line, alpha)]
    wrong += [problem for pair in found.pairs for problem in of_pair(pair, found)]
    wrong += [f"{name}: {rank}" for name, rank in found.ranks.items() if not rank.low <= rank.rank <= rank.high]
    estimates = [e for s in found.systems for e in (*s.tasks.values(), s.macro, s.query_weighted)]
    wrong += [f"score: {e}" for e in estimates if not e.low <= e.value <= e.high]
    return wrong + of_tables(found)


def random_comparison(seed: int, systems: int = 0) -> Comparison:
    """Few or many queries, ties, binary scores, systems that are the same or far apart, lost queries, singletons."""
    rng = np.random.default_rng(seed)
    systems, tasks = systems or int(rng.integers(2, 8)), int(rng.integers(1, 4))
    copies = np.where(rng.random(systems) < rng.choice([0.0, 0.3]), 0, np.arange(systems))  # of the first system
    matrices = []
    for _ in range(tasks):
        n = int(rng.choice([1, 2, 5, 6, 9, 13, 17, 30, 60]))
        easy = rng.beta(0.6, 1.4, size=n)
        matrix = np.clip(easy + rng.normal(0.0, rng.choice([0.02, 0.15, 0.4]), size=(systems, n)), 0.0, 1.0)
        matrix += rng.choice([0.0, 0.0, 0.1, 0.4], size=(systems, 1))
        same = rng.random((systems, n)) < rng.choice([0.0, 0.5, 0.9])
        matrix = np.where(same, matrix[0], matrix)
        matrix[rng.random((systems, n)) < rng.choice([0.0, 0.0, 0.4])] = 0.0  # queries without results
        matrices.append(np.clip(matrix, 0.0, 1.0).round(int(rng.choice([0, 1, 4])))[copies])
    settings = Settings(resamples=300, seed=seed, level=float(rng.choice([0.9, 0.95, 0.99])))
    return compare(scores_of(*matrices), settings, margin=float(rng.choice([0.005, 0.03, 0.2])))


@pytest.mark.parametrize("seed", range(40))
def test_no_table_contradicts_itself(seed: int) -> None:
    assert contradictions(random_comparison(seed)) == []


def test_no_table_of_many_systems_contradicts_itself() -> None:
    assert contradictions(random_comparison(1, systems=24)) == []


@pytest.mark.slow
def test_no_table_of_many_contradicts_itself() -> None:
    assert [seed for seed in range(1_000, 2_500) if contradictions(random_comparison(seed))] == []
    assert [n for n in range(8, 41, 4) if contradictions(random_comparison(n, systems=n))] == []


def test_twelve_systems_and_fifty_points() -> None:
    """88 lines with a difference of 50 points had no star, because Holm's correction outgrew the number of draws."""
    rng = np.random.default_rng(0)
    tasks = [np.clip(rng.normal(0.3, 0.1, size=(12, 50)), 0.0, 1.0) for _ in range(8)]
    for matrix in tasks:
        matrix[0] += 0.5
    found = compare(scores_of(*tasks), Settings(resamples=200))
    real = [line for p in found.pairs if p.first == "s0" for line in p.tasks.values()]
    assert len(real) == 88
    assert all(line.different for line in real)
    assert contradictions(found) == []


def test_zero_is_printed_without_a_sign() -> None:
    matrix = np.zeros((2, 30))
    matrix[1, :4] = [0.3, -0.3, 1e-17, 0.1]
    text = "\n".join(t.text() for t in comparison_tables(compare(scores_of(matrix), Settings(resamples=200))))
    assert "-0.00" not in text
    assert "+0.00" not in text


def test_p_near_the_level_is_read_from_more_draws() -> None:
    """Ten times as many sign flips as resamples: p near 0.05 then varies by less than its last printed digit."""
    noise = np.random.default_rng(19).normal(size=60)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    matrix = np.stack((np.zeros(60), 0.2 * (noise + 2.0 / np.sqrt(60))))  # t is 2
    found = [compare(scores_of(matrix), Settings(seed=s)).pairs[0].macro.p for s in range(6)]
    assert 0.03 < np.mean(found) < 0.07
    assert np.std(found) < 0.0015
    assert p_value(found[0]).startswith("0.0")


def test_a_comparison_is_plain_data() -> None:
    found = compare(drawn(3, (20, 13)), Settings(resamples=200), margin=0.02)
    back = msgspec.json.decode(msgspec.json.encode(found), type=Comparison)
    assert back.letters == found.letters
    assert back.pairs[0].macro == found.pairs[0].macro
