"""Write the pages of the documentation that are made from code and data: `python tools/docs.py [FOLDER]`.

Commands come from the command line itself, components and measures from their registries, the Python API from
signatures and docstrings, file formats from the types that read and write them, tasks and models from the catalogue.
Nothing here is written twice, so nothing can drift. The pages go to `docs/reference/`, which git ignores; `make docs`
builds the site from there.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from docs_pages import commands, components, environment, files, measures, models, python_api, tasks

from r2med.core.files import write_bytes

TARGET = Path(__file__).parent.parent / "docs" / "reference"
WRITERS = (commands, components, python_api, files, measures, environment, tasks, models)


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    pages = {name: text for writer in WRITERS for name, text in writer.pages().items()}
    shutil.rmtree(target, ignore_errors=True)
    for name, text in pages.items():
        write_bytes(target / name, (text.rstrip() + "\n").encode())
    print(f"{len(pages)} pages in {target}", file=sys.stderr)


if __name__ == "__main__":
    main()
