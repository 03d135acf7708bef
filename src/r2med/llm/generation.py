"""One stored answer, and the key of the file it belongs to."""

from __future__ import annotations

import re

import msgspec

from ..core import fingerprint
from .parsing import Parsed, Status, parse
from .protocol import Chat, Choice, FinishReason, Message, Reply, Request, Sampling

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.+-]+")


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
    cost: float | None = None
    model: str = ""
    error: str = ""
    # Why it failed.
    prompt: tuple[Message, ...] = ()
    # Kept on request.
    extra: dict[str, object] = {}
    # What a method adds: searches, turns, evidence.

    @property
    def usable(self) -> bool:
        """Whether `final` may stand in for the query; otherwise the raw query does, and that is counted."""
        return bool(self.final) and self.status in ("ok", "truncated")

    @property
    def choice(self) -> Choice:
        """The answer as it came."""
        return Choice(self.raw, self.reasoning[: self.apart], self.finish_reason)


class StoreKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What answers must share to lie in one file."""

    method: str
    llm: str
    # Name, for people.
    model: dict[str, object]
    # `Chat.describe()`.
    template: str
    # Hash of the prompt pack the prompts are made from.
    sampling: Sampling
    task: str
    # Fingerprint of the task.
    settings: dict[str, object] = {}
    # Anything else of the method that changes a prompt or an answer: the first-stage retriever, limits on searches.

    @classmethod
    def of(
        cls,
        method: str,
        chat: Chat,
        template: str,
        sampling: Sampling,
        task: str,
        settings: dict[str, object] | None = None,
    ) -> StoreKey:
        """The key for generating with `chat`."""
        return cls(
            method=method,
            llm=chat.name,
            model=chat.describe(),
            template=template,
            sampling=sampling,
            task=task,
            settings=settings or {},
        )

    @property
    def digest(self) -> str:
        """Fingerprint of all of it but what is said to people: other words do not orphan answers."""
        facts = msgspec.to_builtins(self)
        del facts["llm"]
        facts["model"].pop("warning", None)
        return fingerprint("generations", facts)

    @property
    def file_name(self) -> str:
        """`method/llm/digest.jsonl`."""
        return f"{_safe(self.method)}/{_safe(self.llm)}/{self.digest}.jsonl"


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
                cost=reply.cost if first or reply.cost is None else 0.0,
                model=reply.model,
                error=reply.error,
                prompt=request.messages if keep_prompt else (),
                extra={"first_token": [list(t) for t in choice.first_token]} if choice.first_token else {},
            )
        )
    return generations


def read_again(generation: Generation, marking: str, *, clean: bool) -> Generation:
    """A stored answer under other rules of reading: nothing is paid for a change of mind."""
    if generation.clean == clean:
        return generation
    parsed = parse(generation.choice, marking, clean=clean)
    return msgspec.structs.replace(
        generation, status=parsed.status, final=parsed.final, removed=parsed.removed, clean=clean
    )


def _safe(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name).strip("._") or "_"
