"""Which skills a program has."""

from __future__ import annotations

from askback.app.database import shelf_of
from askback.app.files import command_files
from askback.blobs.blocking import BlockingFiles
from askback.engines import registry
from askback.engines.registry import Engines
from askback.fs.records import Records
from askback.settings.model import Settings
from askback.skills.archive import ZipLimits
from askback.skills.library import Library
from askback.skills.package_archives import PackageArchives


def open_library(
    settings: Settings,
    engines: Engines | None = None,
    records: Records | None = None,
    files: BlockingFiles | None = None,
) -> Library:
    """`records` and `files` are those of a program that is open. A command needs neither."""
    if files is None:
        files = command_files(settings)
    known = registry.engines() if engines is None else engines
    return Library(
        settings.data_dir,
        settings.skills_dir,
        ZipLimits(entries=settings.limits.zip_entries, total_bytes=settings.limits.zip_total_bytes),
        known.config_names,
        shelf=shelf_of(settings, records),
        archives=None if files is None else PackageArchives(files),
    )
