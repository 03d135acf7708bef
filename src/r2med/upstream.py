"""`python -m r2med.upstream`: the R2MED repository's commands, which live in `cli/upstream.py`.

Scripts written for that repository call this name; nothing else is here.
"""

import sys

from .cli.upstream import main

if __name__ == "__main__":
    sys.exit(main())
