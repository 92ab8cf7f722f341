"""What stores in SQL databases share: statements, rows, and the reads and writes of more than one step.

Knows no driver: a database adds a `Connection`, its own words for some statements, and threads. Start with `connection`.
"""
