"""Everything the command can do, as functions; `r2med.NAME` gives each of them.

`experiments` runs systems, `tasks` makes and checks the data, `results` compares and publishes, `machine` looks after
models and what is kept on disk.
"""
