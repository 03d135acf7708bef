"""Language models that judge a pair by their next token: yes or no, 1 or 0.

The two texts and what stands around them are tokenized apart and put together as the models' authors do, so a text is
read once however many pairs it stands in.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..core import ModelError
from ..core.options import Options
from ..models import Card
from ..models.card import Judgment, Truncation
from ..retrieve.encoders.batching import pad
from ..retrieve.encoders.torch_models import import_transformers, load_with, mixed_precision, stated_config
from .contract import Float32
from .cross_encoder import PairIds, PairTokenizer, Template, Text, document_floor
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
