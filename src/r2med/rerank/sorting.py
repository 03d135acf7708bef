"""Ways to sort a list by asking about a few of its members at a time.

Each is a generator: it yields places to be compared, is sent their order (positions among those asked about, best
first), and returns the whole list's new order. Who asks, and how many lists are sorted at once, is not its business.
"""

from __future__ import annotations

from collections.abc import Generator

from ..core import UsageError

Sorter = Generator[list[int], list[int], list[int]]


def check_sliding(window: int, step: int) -> None:
    """A step beyond the window would leave passages out."""
    if window < 2 or not 1 <= step <= window:
        raise UsageError(f"a window of {window} cannot move by {step}: at least 2, and a step of 1 to the window")


def sliding(count: int, window: int, step: int) -> Sorter:
    """RankGPT's sliding window: from the end of the list to its head, so that good passages are carried up."""
    order = list(range(count))
    end = count
    while count > 1:
        start = max(0, end - window)
        asked = order[start:end]
        answer = yield asked
        order[start:end] = [asked[i] for i in answer]
        if start == 0:
            break
        end -= step
    return order


def heap_top(count: int, top: int, children: int) -> Sorter:
    """Setwise heap sort: the best `top` by picking the best of a parent and its children; the rest stay in order.

    Only the first of each answer is used. Places are asked about in list order, so that an answer that cannot be read
    (which changes nothing) leaves the first stage's favourite on top.
    """
    heap = list(range(count))
    size = count

    def sift(node: int) -> Generator[list[int], list[int], None]:
        while children * node + 1 < size:
            family = [node, *range(children * node + 1, min(children * (node + 1) + 1, size))]
            asked = sorted(heap[i] for i in family)
            answer = yield asked
            best = asked[answer[0]]
            if best == heap[node]:
                return
            place = heap.index(best)
            heap[node], heap[place] = heap[place], heap[node]
            node = place

    for node in range((count - 2) // children, -1, -1) if count > 1 else ():
        yield from sift(node)
    chosen: list[int] = []
    while size and len(chosen) < top:
        chosen.append(heap[0])
        size -= 1
        heap[0] = heap[size]
        if size > 1 and len(chosen) < top:
            yield from sift(0)
    return [*chosen, *sorted(set(range(count)).difference(chosen))]
