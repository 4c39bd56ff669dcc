"""The commands and their options."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from softmargin import __version__, save
from softmargin.cli import show, work
from softmargin.cli.demo import demo as run_demo
from softmargin.cli.precompile import compiled
from softmargin.cli.tables import read_table, write_table
from softmargin.core.validation import fitted
from softmargin.report import report as write_report

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Bayesian support vector machines. Exit status: 0 done, 1 failed, 2 not understood, 130 interrupted.",
)
sets = typer.Typer(help="Data sets that come along.", rich_markup_mode=None)
app.add_typer(sets, name="datasets")

Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV, TSV or Parquet file; .gz too.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A saved model.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Target = Annotated[str, typer.Option(metavar="COLUMN", help="The response.")]
Columns = Annotated[list[str] | None, typer.Option(metavar="COLUMN")]
Prior = Annotated[str, typer.Option(help="ridge, lasso, group-lasso, bridge, horseshoe, spike-slab, laplace-zero.")]
Seed = Annotated[int, typer.Option(help="Seed of the draws.")]
Task = Annotated[str, typer.Option(help="classify, regress, or auto: a quantity is more than 10 different numbers.")]


def _version(asked: bool) -> None:
    if asked:
        print(f"softmargin {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _table(path: Path, labels: list[str] | None, drop: list[str] | None) -> Any:
    data = read_table(path, frozenset(labels or ()))
    lacking = [name for name in (*(labels or ()), *(drop or ())) if name not in data.columns]
    if lacking:
        raise ValueError(
            f"{str(path)!r} has no column {lacking[0]!r}; it has {', '.join(map(str, data.columns[:30]))}."
        )
    return data.drop(columns=drop or [])


def _writable(out: Path | None) -> None:
    """Refuse a place that no file can be written to, before any work."""
    if out is None:
        return
    if out.is_dir():
        raise ValueError(f"{str(out)!r} is a folder; give the name of a file.")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {str(out.parent)!r}; make it first.")


def _options(prior: str, inference: str, likelihood: str, seed: int) -> dict[str, Any]:
    chosen = {"prior": prior, "inference": inference, "random_state": seed}
    return chosen | ({"likelihood": likelihood} if likelihood else {})


@app.command()
def fit(
    data: Data,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where the model goes.")],
    formula: Annotated[str, typer.Option(help='The model, as in "y ~ x * z + (1 | group)".')] = "",
    target: Target = "",
    groups: Columns = None,
    weights: Annotated[str, typer.Option(metavar="COLUMN", help="Counts of the rows.")] = "",
    labels: Columns = None,
    drop: Columns = None,
    prior: Prior = "ridge",
    inference: Annotated[str, typer.Option(help="vb, map, meanfield, gibbs, hmc or svi.")] = "vb",
    likelihood: Annotated[str, typer.Option(help="hinge, logit, ...; that of the model by default.")] = "",
    task: Task = "auto",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Fit a model to the rows of a table and save it.

    Columns of numbers are predictors as they are, columns of labels are one-hot encoded, missing entries are modelled.
    --groups, --labels (columns of labels, whatever they hold) and --drop may be given several times.
    """
    if bool(formula) == bool(target):
        raise typer.BadParameter("give either --target or --formula.")
    if task not in ("auto", "classify", "regress"):
        raise typer.BadParameter(f"--task is auto, classify or regress; got {task!r}.")
    _writable(out)
    rows = _table(data, labels, drop)
    options, begun = _options(prior, inference, likelihood, seed), time.perf_counter()
    if formula:
        if groups:
            raise typer.BadParameter("a formula names its groups itself, as in (1 | g); leave --groups out.")
        model = work.by_formula(rows, formula, options, weights, task)
    else:
        model = work.fitted(rows, options, target=target, groups=groups or [], weights=weights, task=task)
    save(model, out)
    seconds, columns = time.perf_counter() - begun, work.described(rows, model, weights)
    if json:
        show.print_json(_facts(model) | {"model": str(out), "rows": len(rows), "seconds": seconds, "columns": columns})
        return
    show.table(f"{len(rows)} rows of {data.name}", ["column", " taken as", " "], work.gathered(columns))
    _report(model)
    print(f"\nSaved as {out} in {seconds:.1f} s.")


def _facts(model: Any) -> dict[str, Any]:
    """What a model is, for programs."""
    inner = vars(model).get("estimator_", model)
    told: dict[str, Any] = {"estimator": type(inner).__name__, "left_out": work.goodness(model)}
    for name in ("scale_", "learning_rate_", "converged_", "n_iter_", "classes_"):
        value = fitted(model, name)
        if value is not None:
            told[name.rstrip("_")] = value
    table = model.summary()
    told["coefficients" if "mean" in table else "kernels"] = [
        {"name": _key(key), **row} for key, row in zip(table.index, table.to_dict("records"), strict=True)
    ]
    return told


def _key(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _report(model: Any) -> None:
    """What a model is, for people."""
    inner, words = vars(model).get("estimator_", model), {}
    words["model"] = f"{type(inner).__name__}, {inner.inference}"
    for name, value in work.goodness(model).items():
        words[_WORDS[name]] = f"{value:.4g}"
    classes = fitted(model, "classes_")
    if classes is not None and len(classes) == 2:
        words["f > 0 means"] = str(classes[1])
    elif classes is not None and inner.get_params(deep=False).get("multi_class") == "pairwise":
        words["f > 0 means"] = "the second class of the pair"
    if not model.converged_:
        words["convergence"] = "not reached; see the note"
    show.facts("Fit", words)
    show.coefficients(model)
    found = vars(inner).get("random_effects_", {})
    for name, effects in found.items() if isinstance(found, dict) else ():  # a list where there is one for each pair
        mean = effects["mean"]
        print(f"\nGroups of {name}: {len(effects)}, effects from {mean.min():.3g} to {mean.max():.3g}")


_WORDS = {
    "score": "left-out log loss",
    "error": "left-out error",
    "log_density": "left-out log density",
    "rmse": "left-out error (rms)",
    "r2": "left-out R2",
    "max_kv": "largest weight of a row",
    "accuracy": "decided rightly",
    "log_loss": "log loss",
    "error_rms": "error (rms)",
    "covered": "inside their 95 % interval",
}


@app.command()
def predict(
    model: Model,
    data: Data,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities of the classes, or 95 % intervals.")] = False,
    labels: Columns = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the rows go; else they are printed.")] = None,
    json: Json = False,
) -> None:
    """Predict the rows of a table with a saved model."""
    _writable(out)
    fitted = work.model_of(model)
    rows = work.rows_for(fitted, data, labels or ())
    made = work.predicted(fitted, rows, proba)
    if out is not None:
        write_table(made, out)
    if json:
        show.print_json({"rows": made.to_dict("records")} if out is None else {"rows": len(made), "out": str(out)})
    elif out is None:
        made.to_csv(sys.stdout, index=False)
    else:
        print(f"{len(made)} predictions: {out}")


@app.command()
def report(
    model: Model,
    data: Annotated[Path | None, typer.Argument(metavar="[DATA]", help="Rows to judge the model by.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page with figures.")] = None,
    json: Json = False,
) -> None:
    """Print what a saved model is, how well it predicts left-out rows, and its coefficients.

    With --out the report is a page of HTML, one file with figures.
    """
    _writable(out)
    fitted = work.model_of(model)
    rows = None if data is None else work.rows_for(fitted, data)
    judged = {} if rows is None else work.judged(fitted, rows)
    if out is not None:
        write_report(fitted, rows).save(out)
    if json:
        show.print_json(_facts(fitted) | ({"given": judged} if judged else {}) | ({"out": str(out)} if out else {}))
    elif out is not None:
        print(f"Report: {out}")
    else:
        _report(fitted)
        if judged:
            show.facts(f"Rows of {data}", {_WORDS[name]: f"{value:.4g}" for name, value in judged.items()})


@app.command()
def compare(models: Annotated[list[Path], typer.Argument(metavar="MODEL...")], json: Json = False) -> None:
    """Compare saved models of the same rows by their left-out log loss, the best first."""
    table = work.compared(models)
    if json:
        show.print_json(
            [{"model": name, **row} for name, row in zip(table.index, table.to_dict("records"), strict=True)]
        )
        return
    lines = [
        [name, f"{row.log_loss:.4f}", f"{row.se:.4f}", f"{row.difference:.4f}", f"{row.se_difference:.4f}"]
        for name, row in zip(table.index, table.itertuples(), strict=True)
    ]
    show.table(
        f"{table['rows'].iloc[0]} left-out rows", ["model", "log loss", "se", "difference", "se of difference"], lines
    )


@app.command()
def select(
    data: Data,
    target: Target,
    drop: Columns = None,
    labels: Columns = None,
    prior: Annotated[str, typer.Option(help="spike-slab or laplace-zero.")] = "spike-slab",
    inference: Annotated[str, typer.Option(help="gibbs; laplace-zero takes vb too.")] = "gibbs",
    task: Task = "auto",
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(metavar="MODEL", help="Where the model goes.")] = None,
    json: Json = False,
) -> None:
    """Which columns matter: posterior inclusion probabilities."""
    _writable(out)
    rows = _table(data, labels, drop)
    model = work.fitted(rows, _options(prior, inference, "", seed), target=target, groups=[], weights="", task=task)
    if out is not None:
        save(model, out)
    table = model.summary()
    if "inclusion" not in table:
        raise ValueError(f"the prior {prior!r} selects no columns; use spike-slab or laplace-zero.")
    table = table[table.index.get_level_values(0) != "Intercept"].sort_values("inclusion", ascending=False)
    if json:
        show.print_json({_key(key): value for key, value in table["inclusion"].items()})
        return
    lines = [[_key(key), f"{p:.3f}", "█" * round(20 * p)] for key, p in list(table["inclusion"].items())[:30]]
    show.table("Inclusion probabilities", ["", "P(in)", " "], lines)


@sets.command("list")
def list_sets(json: Json = False) -> None:
    """Names of the data sets."""
    found = work.datasets()
    if json:
        show.print_json(found)
    else:
        show.facts("Data sets", found)


@sets.command("get")
def get_set(
    name: Annotated[str, typer.Argument(help="A name of the list.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where it goes; NAME.csv by default.")] = None,
) -> None:
    """Write a data set as a table; its response is the column "target"."""
    path = Path(f"{name}.csv") if out is None else out
    _writable(path)
    frame = work.datasets(name)
    write_table(frame, path)
    print(f"{len(frame)} rows, response 'target': {path}")


@app.command("compile")
def compile_(
    only: Annotated[str, typer.Option(metavar="WORD", help="Fits whose names contain it, such as gibbs.")] = "",
) -> None:
    """Compile what fits of every kind need, once for each installation: for images, and before timing anything."""
    count, total = 0, 0.0
    for name, seconds in compiled(only):
        count, total = count + 1, total + seconds
        print(f"{name:60} {seconds:6.1f} s", flush=True)
    if not count:
        raise ValueError(f"no kind of fit has {only!r} in its name; leave --only out to see all of them.")
    print(f"{count} kinds of fits, {total:.0f} s.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the picture.", show_default="here")] = Path(),
) -> None:
    """Fit a real data set, print what was found and write a picture."""
    code = run_demo(out)
    if code:
        raise typer.Exit(code)
