"""What a run is and how it changes: states, signals, decisions, outcomes, events, errors. Pure, standard library only.

It knows no clock, file, process or database: callers pass the time, and the store writes what is decided. Start with
`lifecycle.decide`; `runs`, `interactions` and `signals` are the values that it works on, and `errors` lists every code.
"""
