"""All four papers: every table and figure that the available data allow, ours beside theirs.

``--quick`` rehearses everything on few rows in minutes, and writes nothing unless a folder is given. A whole run takes
hours; sections that are done are noted in a file beside the page, and a run that was stopped goes on behind them. Of
``zhang``, which is most of it, every fit is noted, in ``replication/zhang_fits.csv``.
"""

from __future__ import annotations

import json
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from replication.common import DOCS, parser

ZHANG = ("svm", "bayes", "largest", "sizes", "alone", "mixing")
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "polson_scott": ("polson_scott", ()),
    "luts_ormerod_selection": ("luts_ormerod_selection", ()),
    **{f"luts_ormerod_{part}": ("luts_ormerod", ("--only", part)) for part in ("penalty", "groups", "missing")},
    "liu": ("liu", ()),
    **{f"zhang_{part}": ("zhang", ("--only", part)) for part in ZHANG},
    "masking": ("masking", ()),
}
DONE = ".replication.json"


def remaining(folder: Path | None, again: bool) -> tuple[dict[str, Any], list[str]]:
    """What is noted as done in a folder, and the names of the sections that are not."""
    noted = folder / DONE if folder is not None else None
    known = json.loads(noted.read_text()) if noted is not None and noted.exists() and not again else {}
    return known, [name for name in SECTIONS if name not in known]


def main(arguments: list[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--sections", nargs="*", choices=tuple(SECTIONS), metavar="NAME", help="only these")
    options.add_argument("--again", action="store_true", help="run sections that are done once more, all fits included")
    options.add_argument("--jobs", type=int, default=1, help="fits at a time, where every fit is noted")
    chosen = options.parse_args(arguments)
    folder: Path | None = chosen.output or (None if chosen.quick else DOCS)
    done, names = remaining(folder, chosen.again)
    common = ["--quick"] * chosen.quick + (["--output", str(folder)] if chosen.output else [])
    for name in [each for each in chosen.sections or names if each in names]:
        module, own = SECTIONS[name]
        noted = module == "zhang"
        own = (*own, *["--again"] * chosen.again, "--jobs", str(chosen.jobs)) if noted else own
        print(f"== {name}", flush=True)
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # short and single chains are named in the tables
            complete = import_module(f"replication.{module}").main([*common, *own])
        if noted and not complete:
            continue
        done[name] = {"cpu seconds": round(time.process_time() - begun, 1), "quick": chosen.quick}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / DONE).write_text(json.dumps(done, indent=1))
    print("\n".join(f"{name}: {each['cpu seconds']} CPU s" for name, each in done.items()))


if __name__ == "__main__":
    main()
