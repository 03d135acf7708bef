"""How a number was made is looked up when it is made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.retrieve.encoders.weights import real_model

RUN = """
import sys
import r2med
results = r2med.run("bm25", "bge-small", tasks="mini@1/Biology", results=sys.argv[1]).results
for result in results:
    print(result.system.name, *sorted(result.environment["versions"]))
"""


def test_versions_are_those_of_what_the_result_used(tmp_path: Path) -> None:
    """The first result of a process froze the list: bge-small's named no onnxruntime when bm25 came first."""
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "models" / "bge-small").symlink_to(real_model("bge-small", "model.onnx"))
    environment = os.environ | {"R2MED_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", RUN, str(tmp_path / "results")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lists = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert "onnxruntime" not in lists["bm25"]
    assert {"onnxruntime", "tokenizers", "numpy"} <= set(lists["bge-small"])
