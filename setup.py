"""Builds the optional C extensions; everything else is in pyproject.toml.

They are optional: where no compiler is at hand the install goes on without them, and r2med uses their pure-Python
twins, which give the same results more slowly.
"""

from setuptools import Extension, setup

FOLDER = "src/r2med/_native"
# No contraction to fused multiply-add: the sums must be the same bits on every machine and in the Python twin.
FLAGS = ["-O3", "-std=c11", "-ffp-contract=off"]
# Products of `dots` only choose candidates, those of `maxsim` are whole numbers: each machine takes its fastest way.
FAST = ["-O3", "-std=c11", "-Wno-psabi"]

setup(
    ext_modules=[
        Extension(
            "r2med._fast",
            sources=[f"{FOLDER}/{name}.c" for name in ("module", "analyze", "porter")],
            depends=[f"{FOLDER}/{name}.h" for name in ("analyze", "porter", "tables")],
            extra_compile_args=FLAGS,
            optional=True,
        ),
        Extension("r2med._dots", sources=[f"{FOLDER}/dots.c"], extra_compile_args=FAST, optional=True),
        Extension(
            "r2med._maxsim",
            sources=[f"{FOLDER}/maxsim.c"],
            depends=[f"{FOLDER}/maxsim_tile.h"],
            extra_compile_args=[*FAST, "-fwrapv"],
            optional=True,
        ),
        Extension("r2med._sparse", sources=[f"{FOLDER}/sparse.c"], extra_compile_args=FLAGS, optional=True),
    ]
)
