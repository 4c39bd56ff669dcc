"""The command line: ``softmargin fit``, ``predict``, ``report``, ``compare``, ``select``, ``datasets`` and others."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130
_EXTRA = "softmargin: error: the command line needs typer and rich: pip install 'softmargin[cli]'."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : list of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit status: 0 done, 1 failed, 2 not understood, 130 interrupted.
    """
    try:
        import rich  # noqa: F401
        import typer
    except ImportError:
        print(_EXTRA, file=sys.stderr)
        return 1
    from softmargin.cli.app import app

    command = typer.main.get_command(app)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
            done = command.main(list(sys.argv[1:] if argv is None else argv), "softmargin", standalone_mode=False)
        code = int(done or 0)
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:
        code = _failed(error)
    if code == _INTERRUPTED:  # typer may have caught it
        print("softmargin: interrupted.", file=sys.stderr)
    return code


def _failed(error: Exception) -> int:
    """Say what went wrong in one line; 2 where the command was not understood."""
    usage = getattr(error, "format_message", None)  # of click, or of its copy in newer versions of typer
    if usage is not None:
        context = getattr(error, "ctx", None)
        if context is not None:
            print(context.get_usage(), file=sys.stderr)
        print(f"softmargin: error: {usage()}", file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    if type(error).__name__ == "Exit":
        return int(getattr(error, "exit_code", 0))
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        print(f"softmargin: error: cannot use {error.filename}: {reason}.", file=sys.stderr)
        return 1
    if isinstance(error, ValueError | ImportError | MemoryError):
        print(f"softmargin: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    raise error
