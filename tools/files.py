"""Files that are whole or not there: written beside, then renamed."""

import contextlib
import os
import pathlib

from tools.errors import UserError


def write_beside(path, write):
    """Call write(temporary path), then rename over `path`: an interruption leaves the old file, or none.

    Raises UserError, and removes what was written so far, where it can't be written. (Libraries raise exceptions of
    many kinds for a full disk.)
    """
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    except Exception as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: can't be written ({getattr(error, 'strerror', None) or error})") from None


def write_text(path, text):
    """`write_beside` for text, in UTF-8."""
    write_beside(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_bytes(path, data):
    """`write_beside` for bytes.

    safetensors.save_file is not for files that others see: it writes to a file of a random name beside its own, which
    a process that is killed leaves there for good, and gives the result to its owner alone. Save to bytes, and here.
    """
    write_beside(path, lambda temporary: temporary.write_bytes(data))


def make_folder(path):
    """A folder, with those above it. Raises UserError where that can't be."""
    path = pathlib.Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: can't be made ({error.strerror})") from None
    return path
