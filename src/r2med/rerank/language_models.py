"""Language models as rerankers: those that judge a pair by their next token, and those that read a whole list at once.

One that judges is asked for yes or no, 1 or 0. The two texts and what stands around them are tokenized apart and put
together as the models' authors do, so a text is read once however many pairs it stands in.

One that reads a query and many passages in one context scores all of them at once (jina-reranker-v3). A token of its
own stands behind each passage and behind the query. The states of these tokens go through a small network, and a
passage scores the cosine of its vector with the query's. Every passage has read those before it, so a score belongs to
the whole list, in its order: scores are kept under the list, not under the pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..cache import ScoreCache, find_scores, reused, store_scores, text_keys
from ..core import ModelError, fingerprint
from ..core.columns import Int32, Int64
from ..core.options import Options
from ..core.spec import Spec
from ..models import Card
from ..models.card import Judgment, Truncation
from ..retrieve.encoders import WorkOrder
from ..retrieve.encoders.batching import Job, pad, stream_jobs
from ..retrieve.encoders.torch_models import (
    check_whole,
    import_transformers,
    load_with,
    loading,
    mixed_precision,
    stated_config,
)
from ..retrieve.sparse import available_cores
from .contract import Float32
from .cross_encoder import PairIds, PairTokenizer, Template, Text, document_floor
from .pointwise import PairReranker, Pairs, PairScores, Scored
from .torch_cross_encoder import TorchCrossEncoder


class JudgedPairTokenizer(PairTokenizer):
    """Builds the prompt of a judgment around a query and a document."""

    def __init__(self, tokenizer: Any, limit: int, name: str, judgment: Judgment, truncation: Truncation) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self.truncation = tokenizer, truncation
        first, last = _special_tokens(tokenizer) if judgment.special_tokens else ([], [])
        before, between, after = (self._joined(texts) for texts in (judgment.before, judgment.between, judgment.after))
        self.template = Template(before + first, between, last + after, None)
        around = len(before) + len(after)
        self.limit = limit if judgment.length_counts == "all" else limit + around
        self._longest_query = int(limit * judgment.query_share)
        # Where the query has a share of the length, what is left is the document's.
        self.floor = document_floor(limit) if judgment.query_share == 1 else 0
        if self.limit < self.template.size + 2:
            raise ModelError(
                f"{name}: a maximum length of {limit} tokens leaves no room beside its {self.template.size} of prompt"
            )

    def _joined(self, pieces: list[str]) -> list[int]:
        return [token for piece in pieces for token in self.ids(piece)]

    def ids(self, text: str) -> list[int]:
        """Ids of a text, without the special tokens that the tokenizer would add."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def pair(self, query: Text, document: Text) -> PairIds:
        """Both texts within the limit, and the query within its share of it."""
        shown = Text(query.ids[: self._longest_query], min(query.total, self._longest_query))
        made = super().pair(shown, document)
        made.cut = made.cut[0], made.cut[1] + query.total - shown.total
        return made


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a text."""
    made = tokenizer.encode("a")
    own = [place for place, side in enumerate(made.sequence_ids) if side is not None]
    return made.ids[: own[0]], made.ids[own[-1] + 1 :]


class JudgingModel(TorchCrossEncoder):
    """A causal language model whose next token after the pair is the score."""

    def __init__(self, card: Card, folder: Path, options: Options | None = None, *, dtype: str | None = None) -> None:
        super().__init__(card, folder, options, dtype=dtype)
        assert card.judgment is not None
        self.judgment = card.judgment

    def facts(self) -> dict[str, object]:
        """What of the card changes a score, besides the maximum length."""
        templates = [self.card.query_template, self.card.bare_query_template, self.document_prefix]
        facts: dict[str, object] = {"judgment": msgspec.to_builtins(self.judgment), "template": templates}
        if self.card.takes_instructions:
            facts["instructions"] = msgspec.to_builtins(self.card.instructions)
        return facts if self.card.truncation == "document-first" else {**facts, "truncation": self.card.truncation}

    def around_query(self, names: tuple[str, ...]) -> tuple[str, str]:
        """The instruction of the task before it, and what separates it from the document."""
        return self.card.prefix("query", self.card.instruction("query", *names)), self.judgment.query_end

    @cached_property
    def tokenizer(self) -> JudgedPairTokenizer:
        """Loaded on first use."""
        backend = getattr(self.hub_tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(f"{self.name} has no fast tokenizer (tokenizer.json), which pairs are made with")
        return JudgedPairTokenizer(backend, self.max_length(), self.name, self.judgment, self.card.truncation)

    @cached_property
    def answers(self) -> list[int]:
        """Ids of the tokens that are compared: yes, and no where there is one."""
        words = [word for word in (self.judgment.yes, self.judgment.no) if word]
        found = [self.tokenizer.ids(word) for word in words]
        for word, ids in zip(words, found, strict=True):
            if len(ids) != 1 or ids[0] == self.hub_tokenizer.unk_token_id:
                raise ModelError(f"{self.name}: {word!r} is not one token of the tokenizer in {self.folder}")
        return [ids[0] for ids in found]

    def load(self, device: str) -> Any:
        """The language model, read from its files."""
        stated = stated_config(self.folder, self.card.architecture)
        loader = import_transformers().AutoModelForCausalLM
        return load_with(loader, self.folder, self.options, device, self.dtype, **stated)

    def forward(self, batch: list[PairIds], worker: int) -> Float32:
        """One score per pair.

        The padding stands on the left, so that the last place of every row is the last token of its prompt; positions
        are counted from the first token that is none.
        """
        torch, device, model = self.on_device(worker)
        answers = self.answers
        ids, mask = pad([item.ids for item in batch], self.pad_id, side="left", multiple=8 if self.on_gpu else 1)
        places = np.maximum(mask.cumsum(axis=1) - 1, 0)
        arrays = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
        with torch.inference_mode(), mixed_precision(self.dtype, device):
            inputs = {k: torch.from_numpy(a).to(device) for k, a in arrays.items()}
            logits = model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1, answers].float()
            if self.judgment.probability:
                scores = torch.nn.functional.log_softmax(logits, dim=1)[:, 0].exp()
            else:
                scores = logits[:, 0] - logits[:, 1] if self.judgment.no else logits[:, 0]
            return np.asarray(scores.cpu().numpy(), dtype=np.float32)


LAYERS = ("projector.0.weight", "projector.2.weight")
# The two linear layers of the network, with a ReLU between them, as they are called in the weights.
WINDOW = 64
# Lists that are tokenized together.


class Listed:
    """A query with its passages, cut to what the model takes."""

    def __init__(self, query: str, passages: list[str], lengths: list[int], cut: Int32) -> None:
        self.query, self.passages = query, passages
        self.lengths = lengths
        """Tokens of the query, then of each passage."""
        self.cut = cut

    def __len__(self) -> int:
        return sum(self.lengths)


class Vectors(NamedTuple):
    """The vector of a query in one context, and those of the passages beside it."""

    query: Any
    passages: Any


class OneContextModel(TorchCrossEncoder):
    """A decoder with a small network behind the tokens that stand for the texts."""

    def __init__(self, card: Card, folder: Path, options: Options | None = None, *, dtype: str | None = None) -> None:
        super().__init__(card, folder, options, dtype=dtype)
        assert card.one_context is not None
        self.rules = card.one_context

    def facts(self) -> dict[str, object]:
        """What of the card changes a score, besides the length of passages."""
        return {"one_context": msgspec.to_builtins(self.rules), "query_length": self.card.query_length}

    def load(self, device: str) -> Any:
        """The decoder and the network, read from the weights; code that lies beside them is not run."""
        stated = stated_config(self.folder, self.card.architecture)
        body = load_with(import_transformers().Qwen3Model, self.folder, self.options, device, self.dtype, **stated)
        return body, [weight.to(device, body.dtype) for weight in _network(self.folder)]

    def read(self, query: str, passages: Sequence[str]) -> Listed:
        """The texts without the tokens that mark them, cut as the model's authors cut them."""
        limits = [self.card.query_length, *[self.card.document_length] * len(passages)]
        texts, lengths, lost = [], [], []
        for given, limit in zip([query, *passages], limits, strict=True):
            text = given.replace(self.rules.passage_token, "").replace(self.rules.query_token, "")
            ids = self.hub_tokenizer(text)["input_ids"]
            texts.append(text if len(ids) < limit else self.hub_tokenizer.decode(ids[:limit]))
            lengths.append(min(len(ids), limit))
            lost.append(max(len(ids) - limit, 0))
        cut = np.column_stack((lost[1:], np.full(len(passages), lost[0]))).astype(np.int32)
        return Listed(texts[0], texts[1:], lengths, cut)

    def scores(self, listed: Listed, worker: int) -> Float32:
        """The score of each passage; lists that do not fit into one context meet the weighted mean of their queries."""
        made = [self._vectors(listed.query, part, worker) for part in self._parts(listed)]
        passages = np.concatenate([vectors.passages for vectors in made])
        query = made[0].query
        if len(made) > 1:
            weights = [(1 + _cosines(vectors.query, vectors.passages).max()) / 2 for vectors in made]
            query = np.average([vectors.query for vectors in made], axis=0, weights=weights)
        return np.asarray(_cosines(query, passages), dtype=np.float32)

    def _parts(self, listed: Listed) -> list[list[str]]:
        """Passages that share a context: so many that another one of full length would still fit."""
        room = self.hub_tokenizer.model_max_length - 2 * listed.lengths[0]
        parts: list[list[str]] = []
        left, open_ = room, False
        for passage, length in zip(listed.passages, listed.lengths[1:], strict=True):
            if not open_:
                parts.append([])
                left = room
            parts[-1].append(passage)
            left -= length
            open_ = len(parts[-1]) < self.rules.most and left > self.card.document_length
        return parts

    def _vectors(self, query: str, passages: list[str], worker: int) -> Vectors:
        torch, device, (body, network) = self.on_device(worker)
        ids = torch.tensor([self.hub_tokenizer(self.rules.prompt(query, passages))["input_ids"]], device=device)
        with torch.inference_mode(), mixed_precision(self.dtype, device):
            states = body(input_ids=ids, use_cache=False).last_hidden_state[0]
            made = []
            for token, count in ((self.rules.query_token, 1), (self.rules.passage_token, len(passages))):
                here = states[ids[0] == self._token(token)]
                if len(here) != count:
                    raise ModelError(f"{self.name}: {token!r} stands {len(here)} times in a prompt, not {count}")
                vectors = torch.relu(here @ network[0].T) @ network[1].T
                made.append(vectors.float().cpu().numpy().astype(np.float64))
        if not all(np.isfinite(vectors).all() for vectors in made):
            raise ModelError(f"{self.name} made a vector that is not finite for {' '.join(query.split())[:40]!r}")
        return Vectors(made[0][0], made[1])

    def _token(self, token: str) -> int:
        found: int | None = self.hub_tokenizer.get_vocab().get(token)
        if found is None:
            raise ModelError(f"the tokenizer of {self.name} has no token {token!r}, which marks its texts")
        return found


def _network(folder: Path) -> list[Any]:
    """The weights of both layers, from whichever file holds them."""
    from safetensors import safe_open

    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            found |= {name: file.get_tensor(name) for name in LAYERS if name in file.keys()}  # noqa: SIM118
    with loading(folder):
        check_whole(set(LAYERS) - set(found))
        if found[LAYERS[0]].shape[0] != found[LAYERS[1]].shape[1]:
            raise ModelError(f"the layers {' and '.join(LAYERS)} do not fit each other")
    return [found[name] for name in LAYERS]


def _cosines(query: Any, passages: Any) -> Any:
    return passages @ query / (np.linalg.norm(query) * np.linalg.norm(passages, axis=1))


class OneContextReranker(PairReranker):
    """Orders candidates by the scores that a model gives them in one context, in their first-stage order."""

    kind = "listwise"

    def __init__(
        self, model: OneContextModel, spec: Spec, options: Options | None = None, *, cache: ScoreCache | None = None
    ) -> None:
        self.model, self.spec, self.options, self._cache = model, spec, options or Options(), cache

    def describe(self) -> dict[str, object]:
        """Everything that changes its rankings."""
        return {"kind": self.kind, **self.model.describe(), "max_length": self.max_length()}

    def max_length(self) -> int | None:
        """Where a context is cut, in tokens."""
        return self.model.max_length()

    def score(self, pairs: Pairs, names: tuple[str, ...]) -> PairScores:
        """Scores of all pairs of a task, through the cache; what the task is called changes none."""
        del names
        bounds = [0, *(np.flatnonzero(np.diff(pairs.query)) + 1).tolist(), len(pairs)] if len(pairs) else [0]
        lists = [pairs.texts(np.arange(first, last)) for first, last in pairwise(bounds)]
        keys = text_keys([f"{fingerprint('list', texts)} {i}" for texts in lists for i in range(len(texts))])
        scores, cut = np.full(len(pairs), np.nan, dtype=np.float32), np.full((len(pairs), 2), -1, dtype=np.int32)
        missing: Int64 = np.arange(len(pairs))
        shards = None
        if self.options.cache and self.options.keep_queries:
            facts = {"scorer": "one context", **self.model.describe()}
            shards = (self._cache or ScoreCache()).open(facts, self.max_length(), label=self.model.name)
            scores, cut, missing = find_scores(shards, keys)
        again = np.unique(np.searchsorted(bounds, missing, side="right") - 1)
        stream = self._stream(lists, bounds, again)
        new = np.zeros(len(pairs), dtype=np.bool_)
        for made in stream if shards is None else store_scores(shards, keys, stream):
            scores[made.rows], cut[made.rows], new[made.rows] = made.scores, made.cut, True
            self.options.progress(int(new.sum()), int(np.diff(bounds)[again].sum()))
        used = {} if shards is None else reused(shards, shards.find(keys), np.flatnonzero(new))
        scored = int(new.sum())
        return PairScores(scores, cut, {"cache_hits": len(pairs) - scored, "scored": scored}, used)

    def _stream(self, lists: list[list[tuple[str, str]]], bounds: list[int], wanted: Int64) -> Iterator[Scored]:
        model = self.model

        def read(numbers: Int64) -> list[Listed]:
            chosen = (lists[number] for number in numbers.tolist())
            return [model.read(texts[0][0], [passage for _, passage in texts]) for texts in chosen]

        def work(job: Job[Listed], worker: int) -> Scored:
            number, listed = int(job.rows[0]), job.items[0]
            rows = np.arange(bounds[number], bounds[number + 1])
            return Scored(rows, model.scores(listed, worker), listed.cut)

        cores = len(model.devices) if model.on_gpu else self.options.threads or available_cores()
        return stream_jobs(WorkOrder(wanted, WINDOW), read, work, budget=1, most=1, workers=cores)
