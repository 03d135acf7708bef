"""A `tokenizer.json` without transformers: token ids, cut at a limit, with the length before the cut."""

from __future__ import annotations

import json
from pathlib import Path

from ...core import MissingExtra, ModelError
from .batching import Tokens


class FileTokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, folder: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtra("tokenizing for ONNX models", "onnx") from None
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} holds no tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise ModelError(f"{path} is not a tokenizer ({str(error)[:120]})") from None
        # The file may carry the padding and truncation its author used last; both are ours to decide.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._special = self._tokenizer.num_special_tokens_to_add(False)
        self.pad_id = self._find_pad(folder)

    def _find_pad(self, folder: Path) -> int:
        config = folder / "tokenizer_config.json"
        try:
            named = json.loads(config.read_text(encoding="utf-8")).get("pad_token") if config.is_file() else None
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ModelError(f"{config} cannot be read ({error})") from None
        if isinstance(named, dict):
            named = named.get("content")
        for token in (named, "[PAD]", "<pad>"):
            if isinstance(token, str) and (found := self._tokenizer.token_to_id(token)) is not None:
                return int(found)
        return 0

    def token_id(self, token: str) -> int | None:
        """Number of a token, or None."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def tokenize(self, texts: list[str], limit: int) -> list[Tokens]:
        """Token ids with special tokens, the text cut so that all fit into `limit`."""
        made: list[Tokens] = []
        for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            total = len(encoding) + self._special
            if total > limit:
                encoding.truncate(max(limit - self._special, 0))
            made.append(Tokens(self._tokenizer.post_process(encoding).ids, total))
        return made
