"""One answer of a chat model as it was read, and reading the answers of a reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..core import fingerprint
from ..http import TOO_LONG
from .decision import Decision
from .parsing import Parsed, Status, parse
from .protocol import Choice, FinishReason, Message, Reply, Request

LOCAL_TOO_LONG = "the embedded model takes"


class Generation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer to one prompt, as read: a line of the generation store."""

    query_id: str
    # The request's key.
    sample: int = 0
    # Which of the n answers.
    prompt_hash: str
    # Of the conversation as sent: the same query with other passages in its prompt is another call.
    status: Status
    # ok, truncated, empty, refused, unparsed; `failed` (no answer could be had) is never stored.
    final: str = ""
    # The text to use; empty where the chain of thought did not end.
    reasoning: str = ""
    apart: int = 0
    # How many characters of the reasoning the server itself set apart; the rest was found in `raw`.
    raw: str = ""
    # The answer, untouched.
    removed: tuple[str, ...] = ()
    # What cleaning took off `final`: preamble, label, fence, closing, tool-call.
    clean: bool = True
    # Whether chatter was looked for at all.
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    # Both on the first sample of a call only: its answers are one bill.
    seconds: float = 0.0
    elapsed: float | None = None
    # Seconds of the clock since the answer before it, while calls ran side by side: all of them add up to what the
    # calls took together. None in lines of before it was measured.
    retries: int = 0
    # How often its call was sent again.
    rate_limits: int = 0
    # How often the server said that it was asked too often.
    again: int = 0
    # How often the same was answered before, with an answer that somebody did not want.
    cost: float | None = None
    model: str = ""
    error: str = ""
    # Why it failed.
    prompt: tuple[Message, ...] = ()
    # Kept on request.
    extra: dict[str, object] = {}
    # What a method adds: searches, turns, evidence.

    @property
    def mark(self) -> str:
        """By which an answer is known that took the place of another; empty for the first one."""
        facts = [self.query_id, self.prompt_hash, self.sample, self.again, self.raw]
        return fingerprint("asked-again", facts) if self.again else ""

    @property
    def usable(self) -> bool:
        """Whether `final` may stand in for the query; otherwise the raw query does, and that is counted."""
        return bool(self.final) and self.status in ("ok", "truncated")

    @property
    def decision(self) -> Decision:
        """The tokens of the last number or verdict with their alternatives, where the server gave them."""
        return msgspec.convert(self.extra.get("decision", ()), Decision)

    @property
    def too_long(self) -> bool:
        """Whether it failed because the prompt did not fit into the model's context."""
        return self.status == "failed" and any(hint in self.error.lower() for hint in (*TOO_LONG, LOCAL_TOO_LONG))

    @property
    def unfinished(self) -> bool:
        """Whether there is reasoning without an answer: it was cut, or it never came to an end."""
        return not self.final and bool(self.reasoning) and self.status in ("truncated", "unparsed", "empty")

    @property
    def choice(self) -> Choice:
        """The answer as it came."""
        return Choice(self.raw, self.reasoning[: self.apart], self.finish_reason)


StatusOf = Callable[[Generation], str]
"""What an answer is worth to the method that asked for it."""


def as_parsed(answer: Generation) -> str:
    """What it is worth to a method that takes any text."""
    return answer.status


def unless_read(answer: Generation, read: object) -> str:
    """A whole answer that a method could not read is `unparsed`."""
    return answer.status if read or answer.status != "ok" else "unparsed"


def read_reply(
    request: Request, reply: Reply, marking: str = "auto", *, clean: bool = True, keep_prompt: bool = False
) -> list[Generation]:
    """The answers of a reply, parsed, one per sample."""
    prompt_hash = request.prompt_hash
    generations = []
    for sample, choice in enumerate(reply.choices, request.sample):
        parsed = Parsed("failed") if reply.error else parse(choice, marking, clean=clean)
        first = sample == request.sample
        generations.append(
            Generation(
                query_id=request.key,
                sample=sample,
                prompt_hash=prompt_hash,
                status=parsed.status,
                final=parsed.final,
                reasoning=parsed.reasoning,
                apart=len(choice.reasoning.strip()),
                raw=choice.text,
                removed=parsed.removed,
                clean=clean,
                finish_reason=choice.finish_reason,
                prompt_tokens=reply.prompt_tokens if first else 0,
                completion_tokens=reply.completion_tokens if first else 0,
                seconds=reply.seconds if first else 0.0,
                retries=reply.retries if first else 0,
                rate_limits=reply.rate_limits if first else 0,
                again=request.again,
                cost=reply.cost if first or reply.cost is None else 0.0,
                model=reply.model,
                error=reply.error,
                prompt=request.messages if keep_prompt else (),
                extra=_extra(choice),
            )
        )
    return generations


def _extra(choice: Choice) -> dict[str, object]:
    """Log-probabilities, where the server gave them."""
    given = {"first_token": choice.first_token, "decision": choice.decision}
    return {name: _lists(value) for name, value in given.items() if value}


def _lists(value: Any) -> Any:
    """Tuples as the lists that a file gives back."""
    return [_lists(part) for part in value] if isinstance(value, tuple) else value


def reparse(generation: Generation, marking: str, *, clean: bool) -> Generation:
    """A stored answer parsed with another `clean` setting; nothing is generated again."""
    if generation.clean == clean:
        return generation
    parsed = parse(generation.choice, marking, clean=clean)
    return msgspec.structs.replace(
        generation, status=parsed.status, final=parsed.final, removed=parsed.removed, clean=clean
    )


def put_newest(samples: dict[int, Generation], answer: Generation) -> None:
    """Take in one of several answers: the first of its number stays, unless it was asked for again since."""
    kept = samples.setdefault(answer.sample, answer)
    if answer.again > kept.again:
        samples[answer.sample] = answer
