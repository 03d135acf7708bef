"""NV-Embed (Lee et al. 2024): Mistral without a causal mask, and pooling by attention over learned latents.

The weights are read from the published safetensors; none of the Python code beside them runs. Texts of a batch stand
one behind the other without padding: all layers but attention work on single tokens, and attention is told where texts
begin and end.
"""

from __future__ import annotations

import json
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import ModelError
from ...core.queries import Side
from . import Float32, shortened
from .batching import Tokens
from .torch_encoder import Replica, TorchEncoder
from .torch_models import check_whole, import_transformers, loading, mixed_precision, to_array, torch_dtype

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]

BACKBONE, POOLING = "embedding_model.", "latent_attention_model."
CROSS, FEED_FORWARD = "cross_attend_blocks.0", "cross_attend_blocks.1"
POOLING_WEIGHTS = {
    "latents",
    *(f"{CROSS}.{name}.{kind}" for name in ("norm", "norm_context") for kind in ("weight", "bias")),
    *(f"{CROSS}.fn.{name}.weight" for name in ("to_q", "to_kv", "to_out")),
    *(f"{FEED_FORWARD}.{name}.{kind}" for name in ("norm", "fn.net.0", "fn.net.2") for kind in ("weight", "bias")),
}
HEADS, HEAD_SIZE = 8, 4096
"""Of the latent attention, where the configuration leaves them out, as the published one does."""
ATTENTION = "r2med-packed"


class Span(NamedTuple):
    """Texts of one length that stand one behind the other."""

    start: int
    length: int
    number: int

    def rows(self, tokens: torch.Tensor) -> torch.Tensor:
        """These texts among all tokens: texts × tokens × rest."""
        return tokens[self.start : self.start + self.length * self.number].unflatten(0, (self.number, self.length))


def spans(lengths: list[int]) -> list[Span]:
    """Neighbours of equal length, together."""
    made, start = [], 0
    for length, group in groupby(lengths):
        made.append(Span(start, length, sum(1 for _ in group)))
        start += length * made[-1].number
    return made


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: object,
    *,
    scaling: float,
    texts: list[Span],
    **others: object,
) -> tuple[torch.Tensor, None]:
    """Attention of every token to all tokens of its own text, in the form transformers asks for."""
    import torch

    del module, attention_mask, others
    found = []
    for span in texts:
        q, k, v = (span.rows(states[0].transpose(0, 1)).transpose(1, 2) for states in (query, key, value))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scaling, enable_gqa=True)
        found.append(seen.transpose(1, 2).flatten(0, 1))
    return torch.cat(found)[None], None


class LatentPooling:
    """A text's vector from its token states: attention over latents, a gated feed-forward layer, the mean.

    Keys and values come from the latents alone, so they are multiplied into the two projections once: a token's scores
    are one product with a matrix as wide as there are heads times latents, and so is what it takes from the values.
    """

    def __init__(self, state: State, heads: int, head_size: int, dtype: torch.dtype) -> None:
        import torch

        def part(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return state[f"{name}.weight"].to(dtype), state[f"{name}.bias"].to(dtype)

        whole = {name: weights.float() for name, weights in state.items() if name.startswith((f"{CROSS}.", "latents"))}
        latents = whole["latents"]
        width = latents.shape[1]
        to_q, to_out = whole[f"{CROSS}.fn.to_q.weight"], whole[f"{CROSS}.fn.to_out.weight"]
        if to_q.shape != (heads * head_size, width) or to_out.shape != (width, heads * head_size):
            raise ModelError(f"the latent attention has no {heads} heads of {head_size}")
        context = torch.nn.functional.layer_norm(
            latents, (width,), whole[f"{CROSS}.norm_context.weight"], whole[f"{CROSS}.norm_context.bias"]
        )
        keys, values = (context @ whole[f"{CROSS}.fn.to_kv.weight"].T).unflatten(1, (2, heads, head_size)).unbind(1)
        into = torch.einsum("nhd,hdw->hnw", keys, to_q.unflatten(0, (heads, head_size)))
        out_of = torch.einsum("nhd,whd->hnw", values, to_out.unflatten(1, (heads, head_size)))
        self.heads, self.width = heads, width
        self.into = (into * head_size**-0.5).flatten(0, 1).to(dtype)
        self.out_of = out_of.flatten(0, 1).to(dtype)
        self.norm, self.second_norm = part(f"{CROSS}.norm"), part(f"{FEED_FORWARD}.norm")
        self.widen, self.narrow = part(f"{FEED_FORWARD}.fn.net.0"), part(f"{FEED_FORWARD}.fn.net.2")

    def states(self, hidden: torch.Tensor) -> torch.Tensor:
        """Token states behind the latent attention and the feed-forward layer."""
        import torch

        functional = torch.nn.functional
        scores = functional.linear(functional.layer_norm(hidden, (self.width,), *self.norm), self.into)
        weights = scores.unflatten(1, (self.heads, -1)).softmax(dim=-1).flatten(1)
        hidden = hidden + weights @ self.out_of
        inner = functional.linear(functional.layer_norm(hidden, (self.width,), *self.second_norm), *self.widen)
        kept, gates = inner.chunk(2, dim=-1)
        return hidden + functional.linear(kept * functional.gelu(gates), *self.narrow)


class NvEmbedModel:
    """Both parts on one device."""

    def __init__(self, config: dict[str, Any], state: State, device: str, dtype: str) -> None:
        """From a configuration as published and tensors of the published names, already on the device."""
        import torch

        self.device = device
        transformers = import_transformers()
        transformers.AttentionInterface.register(ATTENTION, packed_attention)
        text = {name: value for name, value in config["text_config"].items() if name not in ("model_type", "auto_map")}
        self.config = transformers.MistralConfig(**text, attn_implementation=ATTENTION)
        with torch.device("meta"):
            self.backbone = transformers.MistralModel(self.config)
        _check_names(state, {BACKBONE + name: tensor.shape for name, tensor in self.backbone.state_dict().items()})
        own = {n.removeprefix(BACKBONE): t.to(torch_dtype(dtype)) for n, t in state.items() if n.startswith(BACKBONE)}
        self.backbone.load_state_dict(own, assign=True)
        # The one part that has no weights: rotary frequencies, in float32 whatever the precision.
        self.backbone.rotary_emb = type(self.backbone.rotary_emb)(config=self.config).to(device)
        self.backbone.eval()
        latent = config.get("latent_attention_config") or {}
        heads, size = (int(latent.get(k) or v) for k, v in (("num_cross_heads", HEADS), ("cross_dim_head", HEAD_SIZE)))
        pooling = {n.removeprefix(POOLING): t for n, t in state.items() if n.startswith(POOLING)}
        self.pooling = LatentPooling(pooling, heads, size, torch_dtype(dtype))
        self.masks_instruction = bool(config.get("is_mask_instruction", True))

    def encode(self, ids: list[list[int]], skip: int) -> torch.Tensor:
        """A vector for each text; the first `skip` tokens are read but not averaged."""
        import torch

        texts = spans([len(text) for text in ids])
        tokens, places = (
            torch.tensor([list(chain.from_iterable(each))], device=self.device)
            for each in (ids, [range(len(text)) for text in ids])
        )
        hidden = self.backbone(input_ids=tokens, position_ids=places, use_cache=False, texts=texts).last_hidden_state[0]
        vectors = []
        for span in texts:
            kept = span.rows(hidden)[:, skip:]
            states = self.pooling.states(kept.flatten(0, 1)).unflatten(0, kept.shape[:2])
            vectors.append(states.float().mean(dim=1))
        return torch.cat(vectors)


def load_nv_embed(folder: Path, device: str, dtype: str) -> NvEmbedModel:
    """The model of a folder as it is published."""
    with loading(folder):
        config = json.loads((folder / "config.json").read_text("utf-8"))
        return NvEmbedModel(config, _read_state(folder, device, dtype), device, dtype)


def _read_state(folder: Path, device: str, dtype: str) -> State:
    """All tensors of all shards; those of the backbone in the asked precision, so that they are held once."""
    from safetensors import safe_open

    state: State = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device=device) as shard:
            for name in shard.keys():  # noqa: SIM118 - not a dict
                if name in state:
                    raise ModelError(f"the weight {name} stands in two files")
                tensor = shard.get_tensor(name)
                state[name] = tensor.to(torch_dtype(dtype)) if name.startswith(BACKBONE) else tensor
    return state


def _check_names(state: State, backbone: dict[str, torch.Size]) -> None:
    wanted = set(backbone) | {POOLING + name for name in POOLING_WEIGHTS}
    check_whole(wanted - set(state))
    if unknown := sorted(set(state) - wanted):
        raise ModelError(f"{len(unknown)} weights are not NV-Embed's, {unknown[0]} the first")
    for name, shape in backbone.items():
        if state[name].shape != shape:
            raise ModelError(f"the weight {name} has the shape {tuple(state[name].shape)}, not {tuple(shape)}")


class NvEmbedEncoder(TorchEncoder):
    """NV-Embed as its authors' `encode` runs it: EOS stands behind a text before it is cut, no mean of instructions."""

    def load(self, folder: Path, device: str) -> Replica:
        """The model on a device."""
        return Replica.of(load_nv_embed(folder, device, self.dtype), device)

    def tokenize(self, texts: list[str], side: Side, instruction: str) -> list[Tokens]:
        """Token ids of each text with its EOS, which a text that is cut loses."""
        end = self.tokenizer(side).eos_token
        return super().tokenize([text + end for text in texts], side, instruction)

    def forward(self, batch: list[list[int]], side: Side, instruction: str, worker: int) -> Float32:
        """One vector per list of token ids."""
        import torch

        replica = self.replica(side, worker)
        model: NvEmbedModel = replica.model
        skip = self.instruction_tokens(side, instruction) if model.masks_instruction else 0
        with torch.inference_mode(), mixed_precision(self.dtype, replica.device):
            vectors = model.encode(batch, skip)
            whole = to_array(torch.nn.functional.normalize(vectors, dim=1) if self.card.normalize else vectors)
            return shortened(whole, self.card)

    def instruction_tokens(self, side: Side, instruction: str) -> int:
        """Tokens at the beginning that are left out of the mean: as many as the instruction has by itself.

        The authors count it without BOS, which stands first, so that the instruction's last token is averaged.
        """
        return len(self.tokenizer(side).tokenize(instruction)) if instruction else 0
