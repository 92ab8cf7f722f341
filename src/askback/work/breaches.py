"""A limit that an engine exceeded, as the run's error: what it used, what it may use, and the setting to change.

It is our doing, and neither the engine's failure nor a session's: so the code is the same on a resumed turn.
"""

from __future__ import annotations

from askback.core.errors import ErrorCode, RunError
from askback.core.runs import Run
from askback.process.limits import Breach, Resource, ResourceLimits

_MB = 1024 * 1024
_CAUSES = {
    Resource.MEMORY: ErrorCode.MEMORY_LIMIT,
    Resource.PROCESSES: ErrorCode.PROCESS_LIMIT,
    Resource.CPU: ErrorCode.CPU_LIMIT,
    Resource.DISK: ErrorCode.DISK_LIMIT,
    Resource.RESERVE: ErrorCode.DISK_LIMIT,
}


def limit_error(run: Run, limits: ResourceLimits, breach: Breach) -> RunError:
    return RunError(
        code=ErrorCode.RESOURCE_LIMIT_EXCEEDED,
        cause=_CAUSES[breach.resource],
        message=f"{_what(limits, breach)}; {_advice(run, breach.resource)}",
    )


def _what(limits: ResourceLimits, breach: Breach) -> str:
    seen = breach.figure
    match breach.resource:
        case Resource.MEMORY:
            return f"the engine used {_mb(seen)} MB of memory and may use {_mb(limits.memory_bytes)} MB"
        case Resource.PROCESSES:
            return f"the engine had {seen} processes or threads and may have {limits.processes} processes"
        case Resource.CPU:
            return f"the engine used {seen} s of CPU time and may use {limits.cpu_sec:g} s"
        case Resource.DISK:
            return f"the run's files took {_mb(seen)} MB and may take {_mb(limits.disk_bytes)} MB"
        case Resource.RESERVE:
            return f"the run filled the disk: {_mb(seen)} MB are free and {_mb(limits.reserve_bytes)} MB must stay free"


def _advice(run: Run, resource: Resource) -> str:
    if resource is Resource.RESERVE:
        return "make room, or lower limits.disk_reserve"
    key = "cpu_sec" if resource is Resource.CPU else resource
    return f"raise limits.{key}, or engines.{run.engine}.limits.{key}, if it needs more"


def _mb(number: int) -> int:
    return round(number / _MB)
