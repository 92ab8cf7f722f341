"""Executes turns: claims queued runs, starts their engines, and stores what came of it.

Does not know who submitted a run, and never calls `runs.service`. Start with `worker`, which claims runs; `turn` has the steps of
one turn; `warm_pool` has the processes that stay between turns, and `warm` the tasks that keep them.
"""
