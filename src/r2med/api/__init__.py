"""Everything the command can do, as functions; `r2med.NAME` gives each of them.

`experiments` runs systems, `data` makes and checks tasks, `judging` has them judged, `results` compares, `publish`
writes for others, `machine` says what can be run and looks after models and what is kept on disk.
"""
