"""Encoders in transformers: every architecture of the catalogue, pooled as its card says, or a vector per token."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from ...core import ModelError
from ...core.columns import Int64
from ...core.options import Options
from ...core.queries import Side
from ...models import Card, Interaction
from ...models.locate import folder_hashes
from . import BaseEncoder, Batch, Float32, TokenBatch, WorkOrder, length_facts, lower_first, shortened, text_facts
from .batching import (
    BATCH_TOKENS,
    TOKEN_WINDOW,
    Job,
    Tokens,
    by_length,
    check_room,
    pad,
    stream_batches,
    stream_jobs,
    token_batch,
    tokenize_bounded,
)
from .torch_models import (
    BIDIRECTIONAL,
    bidirectional,
    check_folder,
    is_out_of_memory,
    load_head,
    load_model,
    load_projections,
    load_tokenizer,
    mixed_precision,
    pool,
    resolve_devices,
    resolve_dtype,
    to_array,
    token_budget,
    torch_dtype,
    use_all_cores,
)

TOKENS = 2  # raised when a text becomes other tokens, so that vectors of the former ones are not used again


PREFIX = "instruction without its end"  # once a [SEP] behind it was counted, and a token of the text left out


class Replica:
    """One encoder on one device."""

    def __init__(self, card: Card, folder: Path, options: Options, device: str, dtype: str) -> None:
        self.device = device
        self.model = load_model(card, folder, options, device, dtype)
        self.projection = load_projections(folder, card.projection, device)
        if card.head:
            self.projection = load_head(folder, card.head, device)

    @classmethod
    def of(cls, model: Any, device: str) -> Replica:
        """A model that was loaded otherwise."""
        made = cls.__new__(cls)
        made.device, made.model, made.projection = device, model, None
        return made


class TorchEncoder(BaseEncoder):
    """One or two encoders (queries, documents), on as many devices as there are."""

    def __init__(
        self,
        card: Card,
        folder: Path,
        options: Options | None = None,
        *,
        document_folder: Path | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__()
        self.name = card.name
        self.card = card
        self.options = options = options or Options()
        self.folders: dict[Side, Path] = {"query": folder, "document": document_folder or folder}
        for path in set(self.folders.values()):
            check_folder(path, card, options)
        if not card.remote_code:
            # What is built here is built here, whatever code lies beside the weights.
            self.options = options.changed({"trust_remote_code": False})
        self.devices = resolve_devices(options.device)
        self.dtype = resolve_dtype(dtype, self.devices)
        self._replicas: dict[tuple[Path, int], Replica] = {}
        self._tokenizers: dict[Path, Any] = {}
        self._lock = threading.Lock()

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        card = self.card
        return {
            "backend": "transformers",
            "files": folder_hashes(self.folders[side]),
            "tokens": TOKENS,
            "architecture": card.architecture,
            "pooling": card.pooling,
            "projection": card.projection,
            "normalize": card.normalize,
            "pair": card.document_pair and side == "document",
            "dtype": self.dtype,
            "max_length": self.max_length(side),
            **({"skipped": PREFIX} if card.pooling == "mean-after-instruction" else {}),
            **({"end_token": card.end_token} if card.end_token else {}),
            **({"head": card.head} if card.head else {}),
            **text_facts(self.folders[side]),
            **length_facts(card),
        }

    def max_length(self, side: Side) -> int:
        """Where texts are cut, in tokens."""
        return self.card.length(side)

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """Whole windows: what a text becomes may depend on its batch in the last bits."""
        return by_length(texts)

    def tokenizer(self, side: Side) -> Any:
        """Loaded on first use."""
        folder = self.folders[side]
        if folder not in self._tokenizers:
            loaded = load_tokenizer(folder, self.options, self.card.architecture)
            lower_first(getattr(loaded, "backend_tokenizer", None), folder)
            self._tokenizers[folder] = loaded
        return self._tokenizers[folder]

    def replica(self, side: Side, worker: int) -> Replica:
        """The encoder of a side on a worker's device, loaded on first use, one after the other."""
        place = worker % len(self.devices)
        key = self.folders[side], place
        with self._lock:
            if key not in self._replicas:
                self._replicas[key] = self.load(self.folders[side], self.devices[place])
            return self._replicas[key]

    def load(self, folder: Path, device: str) -> Replica:
        """The encoder of a folder on a device."""
        return Replica(self.card, folder, self.options, device, self.dtype)

    @property
    def workers(self) -> int:
        """Two for each GPU: while it works on one batch, the next is padded and the last one fetched."""
        return len(self.devices) * (2 if self.devices[0].startswith("cuda") else 1)

    def stream(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[Batch]:
        """Encode all texts, a batch at a time."""
        on_gpu = self.devices[0].startswith("cuda")
        if not on_gpu:
            use_all_cores(self.options.threads)
        first = self.replica(side, 0)
        hidden = int(getattr(first.model.config, "hidden_size", 0) or getattr(first.model.config, "d_model", 1024))
        budget = self.options.batch_tokens or token_budget(first.device, hidden)
        most = 2048 if on_gpu else 32
        return stream_batches(
            self, texts, side, instruction, budget=budget, most=most, workers=self.workers
        )  # fmt: skip

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        """Token ids of each text, instruction in front, cut at the limit."""
        return self._tokenize(texts, side, instruction, self.max_length(side))

    def _tokenize(self, texts: list[str], side: Side, instruction: str, limit: int) -> list[Tokens]:
        tokenizer = self.tokenizer(side)
        whole = [instruction + t for t in texts]
        if self.card.pooling == "last-eos":
            return self._with_eos(whole, tokenizer, limit)
        at = tokenizer.truncation_side
        bounded = tokenize_bounded(whole, limit, lambda some: self._ids(tokenizer, some, side), at)
        made = [b.tokens for b in bounded]
        long = [i for i, ids in enumerate(made) if len(ids) > limit]
        texts = [bounded[i].text for i in long]
        cut = self._ids(tokenizer, texts, side, truncation=True, max_length=limit) if long else []
        for i, ids in zip(long, cut, strict=True):
            made[i] = ids
        return [Tokens(ids, b.total) for ids, b in zip(made, bounded, strict=True)]

    def _ids(self, tokenizer: Any, texts: list[str], side: Side, **how: object) -> list[list[int]]:
        pair = self.card.document_pair and side == "document"
        given = ([""] * len(texts), texts) if pair else (texts,)
        kept: list[list[int]] = tokenizer(*given, padding=False, verbose=False, **how)["input_ids"]
        return kept

    def _with_eos(self, texts: list[str], tokenizer: Any, limit: int) -> list[Tokens]:
        """One EOS at the end of every text, whether or not this version of the tokenizer appends it."""
        eos = self._end(tokenizer)
        made = []
        at = tokenizer.truncation_side
        for bounded in tokenize_bounded(texts, limit, lambda some: self._plain_ids(tokenizer, some), at):
            ids = bounded.tokens
            own = ids[:-1] if ids and ids[-1] == eos else ids
            kept = own[: limit - 1] if at == "right" else own[max(len(own) - limit + 1, 0) :]
            made.append(Tokens([*kept, eos], round(len(own) * bounded.times) + 1))
        return made

    def _end(self, tokenizer: Any) -> int:
        """The token that ends a text."""
        token: str = self.card.end_token or tokenizer.eos_token or ""
        found: int | None = tokenizer.convert_tokens_to_ids(token)
        if not token or found is None or tokenizer.convert_ids_to_tokens(found) != token:
            raise ModelError(f"the tokenizer of {self.name} has no token {token or 'that ends a text'}")
        return found

    def _plain_ids(self, tokenizer: Any, texts: list[str]) -> list[list[int]]:
        kept: list[list[int]] = tokenizer(texts, padding=False, verbose=False)["input_ids"]
        return kept

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """One vector per list of token ids."""
        import torch

        replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
        fill = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0
        arrays = pad(batch, fill, self.card.padding_side)
        with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
            ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
            # Without padding no mask is needed, and attention takes its fastest path.
            hidden = self.states(replica, ids, mask, side, masked=not arrays[1].all())
            skip = self._prefix_tokens(side, instruction)
            vectors = pool(hidden, mask, self.card.pooling, skip)
            if replica.projection is not None:
                vectors = replica.projection(vectors)
            if self.card.normalize:
                vectors = torch.nn.functional.normalize(vectors, dim=1)
            return shortened(to_array(vectors), self.card)

    def states(self, replica: Replica, ids: Any, mask: Any, side: Side, *, masked: bool = True) -> Any:
        """The last state of every token, which sees the tokens before it or, as the card says, all of them."""
        seen, more = mask if masked else None, {}
        if self.card.document_pair and side == "document":
            more["token_type_ids"] = _second_of_pair(ids, mask, self.tokenizer(side).sep_token_id)
        if self.card.architecture.endswith(BIDIRECTIONAL):
            seen = bidirectional(mask, torch_dtype(self.dtype))
        return replica.model(input_ids=ids, attention_mask=seen, **more).last_hidden_state

    def _prefix_tokens(self, side: Side, instruction: str) -> int:
        """How many tokens of a text are instruction: BOS counts, an EOS or [SEP] that only ends it does not."""
        if self.card.pooling != "mean-after-instruction" or not instruction:
            return 0
        tokenizer = self.tokenizer(side)
        ids = tokenizer(instruction)["input_ids"]
        return len(ids) - (1 if ids and ids[-1] in tokenizer.all_special_ids else 0)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether a smaller batch may succeed."""
        return is_out_of_memory(error)


def _second_of_pair(ids: Any, mask: Any, separator: int) -> Any:
    """Segment numbers of a pair: 1 behind the first separator."""
    is_separator = (ids == separator).int()
    return ((is_separator.cumsum(dim=1) - is_separator) > 0).long() * mask


class MarkedTokens(Tokens):
    """A tokenized text of which some tokens are not attended to, or have no vector."""

    __slots__ = ("kept", "seen")

    def __init__(self, ids: list[int], total: int, seen: int, kept: list[int]) -> None:
        super().__init__(ids, total)
        self.seen = seen
        """Tokens, from the first, that others attend to."""
        self.kept = kept
        """Positions that have a vector."""


class TorchTokenEncoder(TorchEncoder):
    """Token vectors from a transformers model, through its projection where it has one.

    Markers, expansion of queries and tokens without a vector are as PyLate has them.
    """

    def describe(self, side: Side) -> dict[str, object]:
        """Everything besides text and instruction that changes a vector."""
        rules = self.card.interaction
        given: dict[str, object] = {} if rules == Interaction() else {"interaction": to_builtins(rules)}
        if self.card.architecture.endswith(BIDIRECTIONAL):
            given["seen"] = "all tokens"  # once only those before a token were, and such scores were kept
        return {**super().describe(side), **given}

    def work_order(self, texts: Sequence[str]) -> WorkOrder:
        """Whole windows: what a text becomes may depend on its batch in the last bits."""
        return by_length(texts, TOKEN_WINDOW)

    def marked(self, texts: list[str], side: Side, instruction: str) -> list[MarkedTokens]:
        """Token ids of each text with what is added to them, and which of them count."""
        rules, tokenizer = self.card.interaction, self.tokenizer(side)
        name = rules.query_marker if side == "query" else rules.document_marker
        marker = [self._token(tokenizer, name)] if name else []
        skipped = self._skipped(tokenizer) if side == "document" else frozenset()
        limit = self.max_length(side)
        made = []
        for tokens in self._tokenize(texts, side, instruction, limit - len(marker)):
            ids = [*tokens.ids[:1], *marker, *tokens.ids[1:]]
            seen = len(ids)
            if rules.expansion and side == "query":
                ids += [self._mask(tokenizer)] * (limit - seen)
            kept = [i for i, token in enumerate(ids) if token not in skipped and (i or rules.first)]
            everything = rules.expansion_seen and side == "query"
            made.append(MarkedTokens(ids, tokens.total + len(marker), len(ids) if everything else seen, kept))
        return made

    def _token(self, tokenizer: Any, name: str) -> int:
        found: int | None = tokenizer.get_vocab().get(name)
        if found is None:
            raise ModelError(f"the tokenizer of {self.name} has no token {name!r}, which marks its texts")
        return found

    def _mask(self, tokenizer: Any) -> int:
        """What fills queries up: the mask token, or EOS in a model that has none."""
        for found in (tokenizer.mask_token_id, tokenizer.eos_token_id):
            if found is not None:
                return int(found)
        raise ModelError(f"the tokenizer of {self.name} has no mask token to fill up queries with")

    def _skipped(self, tokenizer: Any) -> frozenset[int]:
        known = tokenizer.get_vocab()
        return frozenset(known[word] for word in self.card.interaction.skipped if word in known)

    def stream_states(self, texts: Sequence[str], side: Side, instruction: str = "") -> Iterator[TokenBatch]:
        """Token vectors of all texts, a batch at a time."""
        import torch

        check_room(self.marked([""], side, instruction)[0], self.max_length(side), self.name)

        def work(job: Job[MarkedTokens], worker: int) -> TokenBatch:
            replica, tokenizer = self.replica(side, worker), self.tokenizer(side)
            arrays = pad([t.ids for t in job.items], tokenizer.pad_token_id or 0)
            for row, tokens in enumerate(job.items):
                arrays[1][row, tokens.seen :] = 0
            with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
                ids, mask = (torch.from_numpy(a).to(replica.device) for a in arrays)
                hidden = self.states(replica, ids, mask, side).float()
                hidden = hidden if replica.projection is None else replica.projection(hidden)
                return token_batch(job, hidden.cpu().numpy(), [t.kept for t in job.items], texts, self.name)

        def tokenize(window: Int64) -> list[MarkedTokens]:
            return self.marked([texts[i] for i in window.tolist()], side, instruction)

        if not self.devices[0].startswith("cuda"):
            use_all_cores(self.options.threads)
        budget = self.options.batch_tokens or BATCH_TOKENS
        return stream_jobs(self.work_order(texts), tokenize, work, budget=budget, most=32, workers=self.workers)

    def token_names(self, texts: Sequence[str], side: Side, instruction: str = "") -> list[list[str]]:
        """The tokens of each text."""
        names = self.tokenizer(side).convert_ids_to_tokens
        found = self.marked(list(texts), side, instruction)
        return [list(map(str, names([tokens.ids[place] for place in tokens.kept]))) for tokens in found]
