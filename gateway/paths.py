"""Whether something is there in a file system."""

from pathlib import Path


def exists(path: Path) -> bool:
    """Return whether there is a file or a directory, behind links. Raises OSError where it cannot be known.

    From Python 3.14 on, `Path.exists` returns False then, too.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
