from __future__ import annotations

import json

from click.testing import CliRunner

from r2med.cli.recommend import command
from r2med.pipeline.experiment import BEST_OFFLINE


def test_table_and_commands() -> None:
    done = CliRunner().invoke(
        command, ["--gpu-memory", "24GB", "--dollars", "0", "--seconds-per-query", "1", "-n", "2"]
    )
    assert done.exit_code == 0
    assert "GPU memory" in done.stdout
    assert "r2med run --tasks r2med --system " in done.stdout
    assert "not measured here: its score on R2MED" in done.stdout
    assert "do not compare" in done.stderr


def test_json() -> None:
    done = CliRunner().invoke(command, ["--json"])
    document = json.loads(done.stdout)
    first = document["pipelines"][0]
    assert {"system", "score", "published", "measured", "needs", "commands", "not_measured"} == first.keys()
    assert first["system"] == BEST_OFFLINE
    assert document["unranked"] == []
