"""Files of the shape of the R2MED repository's instruction and example files, in words of our own, and their pins."""

from __future__ import annotations

import hashlib
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEYS = {
    "Stack-Biology": "Biology",
    "Stack-Medical": "Medical-Sciences",
    "Stack-Bioinformatics": "Bioinformatics",
    "MedXpertQA-Exam": "MedXpertQA-Exam",
    "MedQA-Diag": "MedQA-Diag",
    "PMC-Treat": "PMC-Treatment",
    "PMCPatients": "PMC-Clinical",
    "IIYiPatients-EN": "IIYi-Clinical",
}
"""The repository's names of the eight tasks, and the catalogue's."""


def _example(key: str) -> str:
    return f"Post: first question of {key}\nPassage:\nfirst answer\n\nPost: second of {key}\nPassage:\nsecond answer\n"


def example_file() -> str:
    entries = "".join(f"    {key!r}: '''{_example(key)}''',\n" for key in KEYS)
    return f"\nExample = {{\n{entries}}}\n"


def instruction_file() -> str:
    def table(name: str, line: str) -> str:
        return f"{name} = {{\n" + "".join(f"    {key!r}: {line.replace('KEY', key)},\n" for key in KEYS) + "}\n"

    return "".join(
        [
            "from example import Example\n\n",
            'unused = {"inst-l": "Not for any task: "}\n',
            table("told", '"Instruct: Look up what settles KEY\\nQuery: "'),
            'bare = {k: v.removeprefix("Instruct: ") for k, v in told.items()}\n',
            'bare["Elsewhere"] = "Look up anything\\nQuery: "\n',
            table("inst_q", '"State the KEY query: "'),
            table("inst_d", '"State the KEY page: "'),
            "nv = told\n",
            'nv["Elsewhere"] = "Instruct: Look up anything\\nQuery: "\n',
            'query_instruction = {"inst-l": inst_q, "bge": "Look for: ", "e5": told, "bmr-2b": bare, "nv": nv}\n',
            'doc_instruction = {"inst-l": inst_d, "bmr-2b": "State this page\\npage: ", "nv": ""}\n',
            table("hyde", '"Write what settles the KEY post.\\nPost: {TEXT}\\nPassage: "'),
            table(
                "query2doc",
                '"As in the examples, settle KEY.\\n\\n{EXAMPLE}\\n\\nPost: {TEXT}\\nPassage: "'
                '.format(EXAMPLE=Example["KEY"], TEXT="{TEXT}")',
            ),
            table("lamer", '"Settle the KEY post.\\n\\nPost: {TEXT}\\n\\nPages: {PASSAGE}"'),
            'generate_hy_doc = {"hyde": hyde, "query2doc": query2doc, "lamer": lamer}\n',
            "check = '''Is {ANSWER} right?'''\n",
        ]
    )


def write_clone(folder: Path, instructions: str = "") -> Path:
    """A folder as a clone of the repository is one; `instructions` in place of our own file."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "example.py").write_text(example_file(), "utf-8", newline="")
    (folder / "src" / "instrcution.py").write_text(instructions or instruction_file(), "utf-8", newline="")
    return folder


def write_protocol(
    path: Path,
    name: str = "r2med-paper",
    url: str = "http://127.0.0.1:9/{commit}/{path}",
    instructions: str = "",
) -> Path:
    """A protocol whose source are these files."""
    hashes = {
        f"src/{file}": hashlib.sha256(text.encode()).hexdigest()
        for file, text in (("example.py", example_file()), ("instrcution.py", instructions or instruction_file()))
    }
    lines = [f'name = "{name}"', 'title = "t"', 'summary = "s"', "[source]", 'repository = "https://example.org/own"']
    lines += [
        f'commit = "{COMMIT}"',
        f'url = "{url}"',
        "[source.files]",
        *(f'"{k}" = "{v}"' for k, v in hashes.items()),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
