"""What an instance observes of the runs that it changes: metrics, and traces for an OpenTelemetry collector.

Must not know who executes runs, and never disturbs one. Start with `run_observer`, which turns stored changes into observations;
`metrics` counts them, and `exporter` sends them, with `spans`, to the collector.
"""
