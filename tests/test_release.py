"""What a release is made of: one version everywhere, links that lead somewhere, archives that hold what they should."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from r2med import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def one(pattern: str, name: str) -> str:
    found = re.findall(pattern, text(name), re.MULTILINE)
    assert len(found) == 1, (name, pattern, found)
    return str(found[0])


def test_changelog_and_citation_agree_with_the_version() -> None:
    newest = re.search(r"^## (\S+) \((\S+)\)$", text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__ == one(r"^version: (\S+)$", "CITATION.cff")
    assert newest[2] == one(r'^date-released: "(\d{4}-\d\d-\d\d)"$', "CITATION.cff")


def test_one_version_of_pytorch_is_tested_and_a_range_is_taken() -> None:
    packaging = pytest.importorskip("packaging.requirements")
    tested = one(r"^torch==(\S+)$", "requirements/tested-torch.txt")
    assert one(r"^torch==([^;]+);", "requirements/without-torch.txt") == tested
    assert one(r"^torch==(\S+)", "requirements/cuda.txt") == tested
    assert one(r"install torch==(\S+)$", "Makefile") == tested
    extra = packaging.Requirement(one(r'^torch = \["(torch[^"]+)"', "pyproject.toml"))
    assert extra.specifier.contains(tested)
    assert "==" not in str(extra.specifier)


@pytest.fixture(scope="module")
def index_readme() -> str:
    """The readme as the package index gets it."""
    pytest.importorskip("setuptools")
    code = "import setuptools, sys; from distutils.core import run_setup\n"
    code += "sys.stdout.buffer.write(run_setup('setup.py', stop_after='init').metadata.long_description.encode())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode()


def test_links_of_the_readme_lead_somewhere_from_the_index(index_readme: str) -> None:
    links = re.findall(r"(!?)\[[^]]*\]\(([^)]+)\)", index_readme)
    places = {"": f"https://github.com/r2med/r2med/blob/v{__version__}/",
              "!": f"https://raw.githubusercontent.com/r2med/r2med/v{__version__}/"}  # fmt: skip
    own = 0
    for picture, link in links:
        assert re.match(r"https://|#", link), link
        if link.startswith(places[picture]):
            own += 1
            assert (ROOT / link.removeprefix(places[picture]).partition("#")[0]).is_file(), link
    assert own > 20
    assert len(links) == len(re.findall(r"\]\(", text("README.md")))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_ask_for_little_and_pin_what_they_use(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    assert "secrets." not in path.read_text("utf-8"), "publishing needs no token"
    for line in path.read_text("utf-8").splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+)*$", line), line
    workflow: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        writing = {key for key, value in job["permissions"].items() if value != "read"}
        allowed = {"id-token", "pages"} if name == "publish" else set()
        assert writing <= allowed, name
        assert "timeout-minutes" in job


def wheels() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return import_module("wheels")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def tracked(folder: str) -> set[str]:
    done = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("not a git checkout")
    return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}


@pytest.mark.slow
def test_archives_hold_what_they_should(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")
    sources, tool = tracked("src"), wheels()
    for name in ("first", "second", "wheel"):
        (tmp_path / name).mkdir()
    sdist = tool.build_sdist(tmp_path / "first")
    assert sdist.read_bytes() == tool.build_sdist(tmp_path / "second").read_bytes(), "the same bytes every time"
    assert sdist.stat().st_size < 3_500_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert sources <= names
    own = {
        "LICENSE",
        "NOTICE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "SECURITY.md",
        "setup.py",
        "pyproject.toml",
    }
    assert own <= names
    assert {name.partition("/")[0] for name in names} <= own | {"", "src", "PKG-INFO", "setup.cfg", "MANIFEST.in"}
    wheel = tool.backend("build_wheel", tmp_path / "wheel", tmp_path / sdist.name.removesuffix(".tar.gz"))
    assert wheel.stat().st_size < 3_500_000
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    wanted = {name.removeprefix("src/") for name in sources if "/_native/" not in name}
    assert wanted <= inside, wanted - inside
    about = f"r2med-{__version__}.dist-info"
    assert {f"{about}/licenses/LICENSE", f"{about}/licenses/NOTICE"} <= inside
    others = {name for name in inside - wanted if not name.startswith(about)}
    assert all(re.fullmatch(r"r2med/_\w+\.[\w.-]+\.(so|pyd)", name) for name in others), others
