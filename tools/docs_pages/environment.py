"""Environment variables; one that the code reads and this page lacks stops the build."""

from __future__ import annotations

import re
from pathlib import Path

import r2med
from r2med.core.table import Table
from r2med.models import cards, chat_cards

KNOWN = {
    "R2MED_HOME": "Where r2med keeps models, embeddings and generations. Default: `r2med` in the XDG cache folder.",
    "XDG_CACHE_HOME": "The XDG cache folder. Default: `~/.cache`.",
    "HF_HOME": "Home of the Hugging Face libraries; its `hub` folder holds downloads.",
    "HF_HUB_CACHE": "That folder, named directly.",
    "HUGGINGFACE_HUB_CACHE": "The older name of `HF_HUB_CACHE`.",
    "HF_ENDPOINT": "Another hub than huggingface.co, for instance a mirror inside a hospital.",
    "HF_TOKEN": "Token for the hub, for models and data behind accepted terms.",
    "HF_TOKEN_PATH": "File with that token. Only looked for by `r2med doctor`; the hub's library reads it.",
    "HF_HUB_OFFLINE": "`1`: the hub is never asked.",
    "OPENAI_API_KEY": "Key for OpenAI or for the server that `OPENAI_BASE_URL` names.",
    "OPENAI_API_KEY_FILE": "File that holds the key, where the variable itself would be seen by others.",
    "OPENAI_BASE_URL": "Another OpenAI-compatible server: vLLM, llama.cpp, a gateway.",
    "COLUMNS": "Width of the terminal, instead of what the terminal itself says.",
    "TERM": "`dumb`: no bold words, no colours and no progress bar.",
    "RAY_ADDRESS": "The Ray cluster that `--executor ray` joins.",
    "RAY_AUTH_TOKEN": "Token of that cluster, with `RAY_AUTH_MODE=token`. A cluster started for one run gets its own.",
}
ELSEWHERE = {
    "CUDA_VISIBLE_DEVICES": "Read by CUDA itself: which GPUs there are. r2med never changes it.",
    "TRANSFORMERS_OFFLINE": "Read by transformers. `r2med doctor` shows it.",
    "HF_DATASETS_OFFLINE": "Read by datasets. `r2med doctor` shows it.",
    "NO_COLOR": "Read by the library that draws on terminals: no colours.",
}
_READ = re.compile(r"""environ(?:\.get\(|\[)\s*["']([A-Z][A-Z0-9_]+)["']""")


def pages() -> dict[str, str]:
    """`environment.md`."""
    root = Path(r2med.__file__).parent
    read = {name for path in root.rglob("*.py") for name in _READ.findall(path.read_text("utf-8"))}
    if undocumented := sorted(read - KNOWN.keys() - ELSEWHERE.keys()):
        raise SystemExit(f"tools/docs_pages/environment.py says nothing about {', '.join(undocumented)}")
    rows = [[f"`{name}`", words] for name, words in (KNOWN | _services() | ELSEWHERE).items()]
    text = (
        "# Environment variables\n\n`r2med doctor` shows those that are set. Keys are read from the environment or "
        "from a file, never from the command line, which other users of a machine can list.\n"
    )
    return {"environment.md": "\n".join([text, Table(["Variable", "Meaning"], rows, left=2).markdown(ready=True)])}


def _services() -> dict[str, str]:
    """The variables that model cards name."""
    said: dict[str, str] = {}
    for card in (*cards(), *chat_cards()):
        if card.key and card.key not in KNOWN:
            said[card.key] = f"Key for the service of {card.summary}."
            said[card.url_variable] = "Another address for that service."
    return said
