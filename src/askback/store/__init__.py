"""The storage of runs, and the queue of turns.

Owns every table and statement, the only writes of states, and the notifications of changes. Knows nothing of engines, HTTP
or the files of runs. Start with `base`, the whole contract; `sqlite` and `postgres` implement it on what `sql` shares.
"""
