"""The storm: a server that is killed over and over while clients use it, and an auditor who trusts nothing of ours.

`make storm [KILLS=1000] [SEED=…]` runs it whole; `tests/e2e/test_storm.py` runs it for some seconds.
"""
