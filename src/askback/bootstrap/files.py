"""Which store of files is used."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from askback.core.errors import Invalid, RefusalCode
from askback.files.atomic import make_private
from askback.settings import Settings
from askback.stored_files import Files
from askback.stored_files.addresses import StoreAddress, read_address
from askback.stored_files.blocking import BlockingFiles
from askback.stored_files.errors import unavailable
from askback.stored_files.folder import FolderFiles

_NEEDED = ("obstore", "zstandard")
INSTALL = "install it with: pip install 'askback[files]' (with pipx: pipx inject askback 'askback[files]')"


def open_files(settings: Settings) -> Files | None:
    """The store that the settings name. Only a folder is accessed: a program starts while an object store is down."""
    if settings.files is None:
        return None
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        problem = f"files: {' and '.join(missing)} is not installed; {INSTALL}, or remove the setting"
        raise Invalid(RefusalCode.SETTINGS_INVALID, "files cannot be stored", [problem])
    address = read_address(settings.files)
    if isinstance(address, Path):
        try:
            make_private(address)
        except OSError as error:
            raise unavailable(str(address), error.strerror or "it cannot be created") from None
    return _made(address)


def _made(address: Path | StoreAddress) -> Files:
    if isinstance(address, Path):
        return FolderFiles(address)
    # An extra.
    from askback.stored_files.object_store import ObjectStoreFiles

    return ObjectStoreFiles(address)


def blocking_files(settings: Settings) -> BlockingFiles | None:
    """The same store, for threads. A folder that has vanished meanwhile is not created again."""
    return None if settings.files is None else BlockingFiles(_made(read_address(settings.files)))


def shared_folder(settings: Settings) -> list[Path]:
    """The folder of the stored files, which engines must not see. Empty if they are elsewhere."""
    address = None if settings.files is None else read_address(settings.files)
    return [address] if isinstance(address, Path) else []
