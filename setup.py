"""Builds the optional C extensions; everything else is in pyproject.toml.

They are optional: where no compiler is at hand the install goes on without them, and r2med uses their pure-Python
twins, which give the same results more slowly. They use the limited API of Python 3.10, so that one build serves every
later Python too; free-threaded Pythons have no limited API and get a build of their own.
"""

import platform
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/r2med/_native"
LIMITED = platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
OLDEST = "0x030A0000"
# No contraction to fused multiply-add: the sums must be the same bits on every machine and in the Python twin.
FLAGS = {
    "msvc": ["/O2", "/std:c11", "/fp:precise"],
    "unix": ["-O3", "-std=c11", "-ffp-contract=off", "-Wno-psabi", "-Wno-deprecated-declarations"],
}
HEADERS = [f"{FOLDER}/{name}.h" for name in ("analyze", "buffers", "compiler", "porter", "tables")]


class Build(build_ext):
    """Compiles with the flags that the compiler understands."""

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
        define_macros=[("Py_LIMITED_API", OLDEST)] if LIMITED else [],
        py_limited_api=LIMITED,
        optional=True,
    )


setup(
    ext_modules=[
        native("_fast", "module", "analyze", "porter"),
        native("_dots", "dots"),
        native("_sparse", "sparse"),
    ],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED else {},
)
