"""Work beside requests: small thread pools, and loops and threads that outlive an outage. Knows no runs.

Start with `loops` for work that repeats, and with `pools` for slow work on behalf of a caller.
"""
