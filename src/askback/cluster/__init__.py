"""The instances of Askback that share one database.

Owns which instances are alive (by file locks, or by leases in PostgreSQL), which one leads, what slots and engines each
offers, and the recovery of runs whose instance has died. Does not know how a turn is executed. Start with `instances`.
"""
