"""The command line, run here."""

import contextlib
import io
from typing import NamedTuple

from softmargin import cli


class Run(NamedTuple):
    code: int
    out: str
    err: str


def run(*argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([str(word) for word in argv])
    return Run(code, out.getvalue(), err.getvalue())
