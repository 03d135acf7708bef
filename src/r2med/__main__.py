"""`python -m r2med` is `r2med`."""

from .cli import main

main()
