"""Builds the optional C extensions and the readme of the package index; everything else is in pyproject.toml.

The extensions are optional: where no compiler is at hand the install goes on without them, and r2med uses their
pure-Python twins, which give the same results more slowly. They use the limited API of Python 3.10 and nothing else, so
that what Python 3.10 builds serves every later Python too. What another Python builds serves that one: the headers of
3.12, for example, count references in a way that crashes 3.11, whatever API they are asked for.
"""

import platform
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
FOLDER = "src/r2med/_native"
# Free-threaded Pythons have no limited API.
LIMITED = platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
FOR_ALL = LIMITED and sys.version_info[:2] == (3, 10)
# No contraction to fused multiply-add: the sums must be the same bits on every machine and in the Python twin.
FLAGS = {
    "msvc": ["/O2", "/std:c11", "/fp:precise"],
    "unix": ["-O3", "-std=c11", "-ffp-contract=off", "-Wno-psabi", "-Wno-deprecated-declarations"],
}
HEADERS = sorted(path.as_posix() for path in Path(FOLDER).glob("*.h"))


class Build(build_ext):
    """Compiles with the flags that the compiler understands, on every core."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True

    def build_extensions(self) -> None:
        for extension in self.extensions:
            extension.extra_compile_args = FLAGS["msvc" if self.compiler.compiler_type == "msvc" else "unix"]
        super().build_extensions()


def native(name: str, *sources: str) -> Extension:
    """An extension of the C files named."""
    return Extension(
        f"r2med.{name}",
        sources=[f"{FOLDER}/{source}.c" for source in sources],
        depends=HEADERS,
        define_macros=[("Py_LIMITED_API", "0x030A0000")] if LIMITED else [],
        py_limited_api=FOR_ALL,
        optional=True,
    )


def index_readme() -> str:
    """The readme with links that lead somewhere from a package index too: to the files of this version."""
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/r2med/_version.py").read_text("utf-8"))[1]
    text = (ROOT / "README.md").read_text("utf-8")
    for link, place in (
        (r"!\[[^]]*\]\(", f"https://raw.githubusercontent.com/r2med/r2med/v{version}/"),
        (r"(?<!!)\[[^]]*\]\(", f"https://github.com/r2med/r2med/blob/v{version}/"),
    ):
        text = re.sub(rf"({link})(?![a-z]+:|#)", lambda found, place=place: found[1] + place, text)
    return text


setup(
    long_description=index_readme(),
    long_description_content_type="text/markdown",
    ext_modules=[
        native("_fast", "module", "analyze", "porter", "trec"),
        native("_bert", "bert", "bert_amx", "bert_vnni", "bert_avx2", "bert_plain"),
        native("_dots", "dots"),
        native("_maxsim", "maxsim"),
        native("_sparse", "sparse"),
    ],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if FOR_ALL else {},
)
