"""The command line of the R2MED repository, on r2med: `python -m r2med.upstream --mode eval_retrieval …`.

The same flags, the same folders, the same keys in the same files, so that scripts written for the repository's `run.py`
go on working; what is computed is computed here.
"""
