"""The frozen protocol: sets that nobody tuned on, one run, all of them shown. See ``protocol.md``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks import common
from benchmarks.unseen.methods import CLASSIFIERS, LEAST, REFERENCE, REGRESSORS, SEVERAL
from benchmarks.unseen.tasks import KINDS, SPLITS, Task, tasks

METHODS = {"two classes": CLASSIFIERS, "many classes": SEVERAL, "regression": REGRESSORS, "wide": CLASSIFIERS}
BEHIND = 0.005
LEVEL = 0.95
Results = dict[str, dict[str, Any]]


def measured(task: Task, splits: int) -> dict[str, Any]:
    """Every method's figures on every split: loss (log loss, or squared error), error or coverage, CPU seconds."""
    own: dict[str, list[list[float]]] = {name: [] for name in METHODS[task.kind]}
    constant, sizes = [], []
    for seed in range(splits):
        labels = None if task.kind == "regression" else task.y
        train, test = train_test_split(
            np.arange(len(task.y)), train_size=task.train, stratify=labels, random_state=seed
        )
        scaler = StandardScaler().fit(task.X[train])
        X_train, X_test = scaler.transform(task.X[train]), scaler.transform(task.X[test])
        y_train, y_test = task.y[train], task.y[test]
        sizes.append([len(train), len(test), X_train.shape[1]])
        judge = _of_numbers if task.kind == "regression" else _of_classes
        constant.append(_constant(task.kind, y_train, y_test))
        for name, fit in METHODS[task.kind].items():
            fitted, seconds = common.cpu(lambda fit=fit, X=X_train, y=y_train: fit(X, y))
            own[name].append([*judge(fitted, X_test, y_test, y_train, name), seconds])
    return {"kind": task.kind, "sizes": sizes, "constant": constant, "methods": own}


def _of_classes(model: Any, X: Any, y: Any, known: Any, name: str) -> list[float]:
    p = np.clip(model.predict_proba(X), LEAST, 1.0)
    p /= p.sum(axis=1, keepdims=True)
    return [float(log_loss(y, p, labels=np.unique(known))), float((model.predict(X) != y).mean())]


def _of_numbers(model: Any, X: Any, y: Any, known: Any, name: str) -> list[float]:
    spread = float(np.var(known))
    loss = float(np.mean((model.predict(X) - y) ** 2)) / spread
    if name != "softmargin":
        return [loss, float("nan")]
    lower, upper = np.asarray(model.predict_interval(X, level=LEVEL)).T
    return [loss, float(((lower <= y) & (y <= upper)).mean())]


def _constant(kind: str, known: Any, y: Any) -> float:
    """The loss of saying the class frequencies, or the mean."""
    if kind == "regression":
        return float(np.mean((y - known.mean()) ** 2) / np.var(known))
    shares = np.bincount(known) / len(known)
    return float(log_loss(y, np.tile(shares, (len(y), 1)), labels=np.unique(known)))


def summary(kind: str, results: Results) -> str:
    """One line per set, the means, wins and losses, and the sets where we are behind."""
    chosen = {name: found for name, found in results.items() if found["kind"] == kind}
    names = list(METHODS[kind])
    peers = [name for name in names if name not in ("softmargin", REFERENCE)]
    losses = {s: {m: np.array(found["methods"][m])[:, 0] for m in names} for s, found in chosen.items()}
    means = {m: float(np.mean([losses[s][m].mean() for s in chosen])) for m in names}
    best_single = min(peers, key=lambda m: means[m])
    measure = "squared error over the variance" if kind == "regression" else "log loss"
    rows, behind, near_constant = [], [], []
    for s, found in chosen.items():
        best = min(peers, key=lambda m: losses[s][m].mean())
        d = losses[s]["softmargin"] - losses[s][best]
        se = common.standard_error(d, *np.mean([row[:2] for row in found["sizes"]], axis=0))
        constant = float(np.mean(found["constant"]))
        n, _, p = found["sizes"][0]
        rows.append((s, f"{n} x {p}", f"{constant:.4f}", *(f"{losses[s][m].mean():.4f}" for m in names)))
        if d.mean() > BEHIND and d.mean() > 2 * se:
            behind.append((s, best, f"{d.mean():+.4f}", f"{se:.4f}"))
        gain, attained = constant - losses[s][best].mean(), constant - losses[s]["softmargin"].mean()
        if gain > 0.01 and attained < 0.2 * gain:
            near_constant.append(s)
    rows.append(("mean", "", "", *(f"{means[m]:.4f}" for m in names)))
    second = {m: np.mean([np.array(chosen[s]["methods"][m])[:, 1].mean() for s in chosen]) for m in names}
    seconds = {m: np.median([np.array(chosen[s]["methods"][m])[:, 2].mean() for s in chosen]) for m in names}
    label = f"coverage of {100 * LEVEL:.0f} % intervals" if kind == "regression" else "mean error %"
    rows.append((label, "", "", *(_percent(second[m]) for m in names)))
    rows.append(("median CPU s", "", "", *(f"{seconds[m]:.3g}" for m in names)))
    wins = [
        (m, *(sum(sign * (losses[s]["softmargin"] - losses[s][m]).mean() < 0 for s in chosen) for sign in (1, -1)))
        for m in names[1:]
    ]
    others = {m: sum(_behind(losses[s], m, chosen[s]["sizes"], peers) for s in chosen) for m in ("softmargin", *peers)}
    parts = [
        f"### {kind.capitalize()}: {len(chosen)} sets, {measure}",
        common.markdown(["set", "rows x columns", "constant", *names], rows),
        f"Best single peer in the mean: {best_single}, {means[best_single]:.4f}; softmargin {means['softmargin']:.4f}.",
        common.markdown(["softmargin against", "better on", "worse on"], wins),
        f"Behind the best peer of the set by more than {BEHIND} and two standard errors: {len(behind)}.",
    ]
    if behind:
        parts.append(common.markdown(["set", "best peer", "difference", "standard error"], behind))
    parts.append("The same of every method, each against the best of all others:")
    parts.append(common.markdown([*others], [[*others.values()]]))
    parts.append(f"Near the constant while a peer is not: {', '.join(near_constant) or 'none'}.")
    return "\n\n".join(parts)


def _behind(losses: dict[str, Any], method: str, sizes: Any, peers: list[str]) -> bool:
    """Whether a method is behind the best other one of a set, by more than a little and more than chance."""
    best = min((m for m in ("softmargin", *peers) if m != method), key=lambda m: losses[m].mean())
    d = losses[method] - losses[best]
    return bool(d.mean() > max(BEHIND, 2.0 * common.standard_error(d, *np.mean([row[:2] for row in sizes], axis=0))))


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value:.2f}"


def main() -> None:
    options = common.parser(__doc__)
    options.add_argument("--splits", type=int, help="of every set (default: 3, of wide sets 20)")
    options.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, metavar="KIND")
    options.add_argument(
        "--json", type=Path, metavar="FILE", help="every single figure; a run that was stopped goes on"
    )
    options = options.parse_args()
    results: Results = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    common.warm_up()
    with common.one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in options.kinds:
            for task in tasks(kind)[: 3 if options.quick else None]:
                key = f"{task.name} ({kind})"
                splits = 2 if options.quick else options.splits or SPLITS[kind]
                if key in results and len(results[key]["sizes"]) == splits:
                    continue
                results[key] = measured(task, splits)
                print(key, flush=True)
                if options.json:
                    options.json.write_text(json.dumps(results))
    text = "\n\n".join(summary(kind, results) for kind in options.kinds)
    common.publish("unseen", text, options)


if __name__ == "__main__":
    main()
