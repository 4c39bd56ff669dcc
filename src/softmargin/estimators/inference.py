"""Each inference as one function: run an engine on a model and return its posterior and what calibration needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from softmargin.designs.base import Array
from softmargin.designs.standardize import Columns
from softmargin.engines.active_set import ActiveSet, finish
from softmargin.engines.annealing import Annealing, heated
from softmargin.engines.approach import many_rows
from softmargin.engines.certificate import Certificate
from softmargin.engines.collapsed import CollapsedGibbs
from softmargin.engines.descent import mode_engine
from softmargin.engines.fixed_point import EM, MeanField
from softmargin.engines.gaussian_vi import GaussianVI, VIState
from softmargin.engines.gibbs import Gibbs
from softmargin.engines.hmc import HMC
from softmargin.engines.loop import Info, Outcome, Progress, run
from softmargin.engines.model import Model, require
from softmargin.engines.penalty import Penalty
from softmargin.engines.scale_mixture import mix_over_scale
from softmargin.engines.single_changes import best_change
from softmargin.estimators.held import deferred
from softmargin.priors.base import PriorMessage

_THINNED = 500  # draws behind the covariance of very many coefficients
_CAVITIES = 100  # sweeps that latent-wise leave-one-out moments are averaged over
_BATCHES = 20  # consecutive parts of a chain behind a Monte Carlo error
_CHANGES = 20  # most single changes by which a mode that need not be the best is improved
_BURN_IN = 100  # sweeps of hmc that are not kept, at most
_ACCEPTED = 0.5  # acceptance below which hmc is not trusted
_UNFINISHED = 1e-6  # certified gap above which a mode is not called found

__all__ = [
    "INFERENCES",
    "Fit",
    "Inclusion",
    "Settings",
    "drawn_fit",
    "fit_vb",
    "options_of",
    "run_engine",
    "sampler_of",
    "suited",
]


@dataclass(frozen=True)
class Settings:
    """What the user asked for, resolved."""

    readout: Any  # how results become a posterior; see ``readout.Readout``
    draws: int = 1000
    warmup: int = 1000
    chains: int = 4
    thin: int = 1
    max_iter: int = 500
    tol: float = 1e-6
    verbose: int = 0
    callback: Callable[[int, Info], bool] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def progress(self, label: str, total: int | None) -> Progress:
        """The progress line of one run."""
        return Progress(label, total, self.verbose)


class Inclusion(NamedTuple):
    """Inclusion probabilities of the model's coefficients."""

    chains: Array  # (chains, coefficients), averages of conditional probabilities
    error: Array  # Monte Carlo standard error of their average over chains
    gap: Array  # (chains, coefficients), frequency of the indicator minus the above

    @classmethod
    def from_batches(cls, sums: Array, kept: int, planned: int, indicator: Array) -> Inclusion:
        """From sums (chains, batches, coefficients) over consecutive draws, and the frequency of the indicators."""
        counts = np.bincount(np.arange(kept) * _BATCHES // planned, minlength=_BATCHES)
        means = (sums[:, counts > 0] / counts[counts > 0, None]).reshape(-1, sums.shape[-1])
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.full(sums.shape[-1], np.nan)
        chains = sums.sum(axis=1) / kept
        return cls(chains, error, indicator - chains)

    def by_column(self, columns: Columns) -> Inclusion:
        """The same of the columns of X; zero for constant ones."""

        def spread(values: Array) -> Array:
            full = np.zeros((*values.shape[:-1], columns.n_features))
            full[..., columns.keep] = values[..., int(columns.intercept) :]
            return full

        return Inclusion(*(spread(part) for part in self))


class Fit(NamedTuple):
    """A posterior with the leave-one-out summary of its training rows."""

    posterior: Any
    held: Any  # leave-one-out predictors of the training rows, with the link fitted on them
    scale: float
    outcome: Outcome
    gap: float | None = None
    vi: VIState | None = None
    inclusion: Inclusion | None = None
    notice: str = ""  # what the user should know about the run

    @property
    def loo(self) -> Any:
        """Leave-one-out scores and the link."""
        return self.held.loo


def options_of(settings: Settings, *known: str) -> dict[str, Any]:
    unknown = set(settings.options) - set(known)
    if unknown:
        raise ValueError(f"unknown engine_options {sorted(unknown)}; this inference knows {sorted(known)}.")
    return settings.options


def run_engine(engine: Any, model: Model, settings: Settings, label: str, **kwargs: Any) -> Outcome:
    require(engine, loss=model.loss, prior=model.prior)
    total = kwargs["max_iter"]
    return run(engine, model, progress=settings.progress(label, total), callback=settings.callback, **kwargs)


def _gaussian(settings: Settings, mean: Array, root: Any, scale: float) -> Any:
    """A Gaussian posterior at one value of the scale."""
    return settings.readout.gaussian(mean, root, np.array([scale]), np.ones(1))


def fit_vb(model: Model, settings: Settings) -> Fit:
    """Exact Gaussian variational inference; the scale's own spread is added by a mixture (see ``_vb``)."""
    options_of(settings)
    outcome = run_engine(GaussianVI(), model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)
    state: VIState = outcome.state
    scale = state.prior.values["scale"]
    posterior = _gaussian(settings, state.q.mean, state.q.root, scale)
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, vi=state)


def _needs_no_draws(model: Model) -> None:
    reason = getattr(model.prior, "only_draws", "")
    if reason:
        raise ValueError(f"{reason}.")


def _selecting(model: Model, settings: Settings) -> Fit:
    """The variational engine that a prior with point masses brings along."""
    engine = model.prior.variational(**options_of(settings, "starts"))  # type: ignore[attr-defined]
    outcome = run_engine(engine, model, settings, "vb", max_iter=settings.max_iter, tol=settings.tol)
    state = outcome.state
    scale = state.prior.values["scale"]
    mean, root = engine.coefficients(state)
    posterior = _gaussian(settings, mean, root, scale)
    nothing = np.zeros_like(state.inclusion)
    inclusion = Inclusion(state.inclusion[None], nothing, nothing[None])
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome, inclusion=inclusion)


def _vb(model: Model, settings: Settings, first: Fit | None) -> Fit:
    _needs_no_draws(model)
    if hasattr(model.prior, "variational"):
        return _selecting(model, settings)
    options_of(settings)
    fit = fit_vb(model, settings) if first is None else first
    assert fit.vi is not None
    structured = not isinstance(fit.vi.q.root, np.ndarray)  # its mixture over scales would not be
    if model.prior.stretch(model.prior.start()) is None or fit.outcome.interrupted or structured:
        return fit._replace(notice=getattr(fit.vi.q.root, "notice", ""))
    try:
        mixture = mix_over_scale(model, fit.vi)
    except KeyboardInterrupt:  # the fit itself is done: only the spread of the scale is missing
        fit.outcome.interrupted = True
        return fit
    posterior = settings.readout.gaussian(mixture.mean, mixture.root, mixture.scales, mixture.weights)
    scale = float(np.exp(mixture.weights @ np.log(mixture.scales)))  # it exists where the mean does not
    return fit._replace(posterior=posterior, scale=scale, held=settings.readout.of_mixture(model, mixture))


def _meanfield(model: Model, settings: Settings, first: Fit | None) -> Fit:
    _needs_no_draws(model)
    if hasattr(model.prior, "variational"):
        return _selecting(model, settings)
    engine = MeanField(**options_of(settings, "accelerate"))
    outcome = run_engine(engine, model, settings, "meanfield", max_iter=settings.max_iter, tol=settings.tol)
    state = outcome.state
    scale = state.prior.values["scale"]
    posterior = _gaussian(settings, state.q.mean, state.q.root, scale)
    return Fit(posterior, settings.readout.of_fit(model, state), scale, outcome)


def _certified(model: Model, beta: Array, g: Array, prior: PriorMessage) -> tuple[ActiveSet, Penalty]:
    """The end point of EM, refined and certified where the penalty is convex."""
    parts = model.prior.penalty(prior.values["scale"])
    margin = np.abs(1.0 - model.y * model.blocks.matvec(beta)) < 1e-4
    if parts is None:  # no dual: the tangent of the penalty at the end point stands in for it
        penalty = Penalty(prior.precision, np.zeros(len(beta)))
        active = (np.abs(beta) > 1e-6 * np.abs(beta).max()) | model.free
        beta = np.where(active, beta, 0.0)
        gap = Certificate(float("nan"), float("nan"), float("nan"))
        return ActiveSet(beta, model.blocks.matvec(beta), g, margin, active, gap), penalty
    penalty = Penalty(*parts)
    active = np.abs(beta) > 1e-6 * np.abs(beta).max()
    if penalty.blocks > 1:  # lengths over the blocks: a variable is in or out in all of them
        active = np.tile(active.reshape(penalty.blocks, -1).any(axis=0), penalty.blocks)
    active |= ~np.tile(penalty.sharp, penalty.blocks)
    return finish(model, beta, g, margin, penalty, active=active), penalty


def _positive(starts: Any) -> tuple[float, ...]:
    """Starts that are a list of positive numbers."""
    values = np.asarray(starts, dtype=float)
    if values.ndim != 1 or not len(values) or not (values > 0).all():
        raise ValueError(f"engine_options starts must list positive numbers; got {starts!r}.")
    return tuple(values.tolist())


def _best(attempt: Callable[[Any], Outcome], starts: Any) -> Outcome:
    """The run with the highest objective; an interrupted one ends the attempts."""
    runs: list[Outcome] = []
    for start in starts:
        runs.append(attempt(start))
        if runs[-1].interrupted:
            break
    best = max(runs, key=lambda found: found.state.objective)
    best.interrupted = runs[-1].interrupted
    best.converged = best.converged and not best.interrupted
    return best


def _em(model: Model, settings: Settings, anneal: bool, convex: bool) -> Outcome:
    """The best end of EM over several starts, improved by single changes of coefficients if not ``convex``."""
    own = ("sweeps", "cold", "chains") if anneal else ("starts",)
    options = dict(options_of(settings, "algorithm", "accelerate", "smoothing", *own))
    options.pop("algorithm", None)
    engine = EM(**{name: value for name, value in options.items() if name not in own})
    # EM creeps: a small change of the objective is not yet a small distance
    tol = min(settings.tol, 1e-9)

    def climb(em: EM, state: Any) -> Outcome:
        return run_engine(em, model, settings, "em", max_iter=settings.max_iter, tol=tol, state=state)

    if anneal:
        search = Annealing(**{name: value for name, value in options.items() if name in own})
        chains = run_engine(search, model, settings, "anneal", max_iter=search.sweeps).state
        outcome = _best(lambda chain: climb(engine, engine.at(model, chain.beta)), chains)
    else:
        starts = _positive(options.get("starts", (1.0,) if convex else (0.01, 1.0, 100.0)))
        outcome = _best(lambda start: climb(replace(engine, shrink=start), None), starts)
    for _ in range(0 if convex else _CHANGES):
        state = outcome.state
        change = best_change(model, state.q.mean, state.f, state.prior.values["scale"])
        if change is None or outcome.interrupted:
            break
        beta = state.q.mean.copy()
        beta[change.at] = change.value
        again = climb(engine, engine.at(model, beta))
        if again.state.objective <= state.objective + tol * abs(state.objective):
            break
        outcome = again
    return outcome


def _map(model: Model, settings: Settings, first: Fit | None) -> Fit:
    _needs_no_draws(model)
    if not hasattr(model.prior, "mode"):
        raise ValueError("this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.")
    convex, linear = model.prior.penalty(1.0) is not None, hasattr(model.loss, "box")
    algorithm = settings.options.get("algorithm", "newton" if convex and linear else "em")
    if algorithm != "newton" and linear and hasattr(model.blocks.design, "entries"):
        raise ValueError(f"solver='cg' finds the mode by algorithm='newton' alone; got {algorithm!r}.")
    if algorithm in ("em", "anneal"):
        outcome = _em(model, settings, algorithm == "anneal", convex or not linear or model.dimension < model.size)
        state = outcome.state
        if not linear:  # nothing sits on a margin, and there is no gap to certify
            scale = state.prior.values["scale"]
            held = settings.readout.of_smooth_mode(model, state.q.mean, state.f, state.prior.precision)
            return Fit(settings.readout.point(state.q.mean, scale), held, scale, outcome, gap=float("nan"))
        g = np.clip(model.y * (state.message.b - state.message.w * state.f), 0.0, 2.0 * model.c)
        point, penalty = _certified(model, state.q.mean, g, state.prior)
    elif algorithm == "newton":
        options = options_of(settings, "algorithm", "starts")
        learned = model.prior.stretch(model.prior.start()) is not None
        several = (1.0,) if many_rows(model) else (0.1, 1.0, 10.0)  # many rows leave no doubt about the scale
        starts = _positive(options.get("starts", several)) if learned else (1.0,)
        tol = min(settings.tol, 1e-6)
        engine = mode_engine(model)
        outcome = _best(
            lambda start: run_engine(engine(start=start), model, settings, "map", max_iter=settings.max_iter, tol=tol),
            starts,
        )
        state = outcome.state
        point, penalty = state.point, state.penalty
    else:
        raise ValueError(f"engine_options algorithm must be 'newton', 'em' or 'anneal'; got {algorithm!r}.")
    notice = ""
    if point.certificate.gap > _UNFINISHED:
        outcome.change = point.certificate.gap
        way = "try another scale of the prior" if algorithm == "newton" else "use algorithm='newton' or raise max_iter"
        notice = f"the mode is certified to a relative gap of {outcome.change:.1e} only; {way}."
    scale = state.prior.values["scale"]
    later = hasattr(model.space, "left_out")  # products alone: what takes the longest waits until it is asked for
    held = (deferred if later else type(settings.readout).of_mode)(settings.readout, model, point, penalty)
    posterior = settings.readout.point(point.beta, scale)
    return Fit(posterior, held, scale, outcome, gap=point.certificate.gap, notice=notice)


def _tempered(model: Model, settings: Settings) -> tuple[Model, Settings]:
    """The posterior raised to the power 1/temperature, where the options ask for it."""
    options = dict(settings.options)
    temperature = options.pop("temperature", 1.0)
    if temperature == 1.0:
        return model, replace(settings, options=options)
    if isinstance(temperature, bool) or not (isinstance(temperature, (int, float)) and temperature > 0):
        raise ValueError(f"temperature must be a positive number; got {temperature!r}.")
    if not hasattr(model.prior, "heated") or model.prior.stretch(model.prior.start()) is not None:
        raise ValueError("temperature needs a ridge, lasso or bridge prior with a fixed scale, as in Lasso(scale=1.0).")
    hot = heated(model, model.prior.start().values["scale"], float(temperature))
    return hot, replace(settings, options=options)


def _gibbs(model: Model, settings: Settings, first: Fit | None) -> Fit:
    model, settings = _tempered(model, settings)
    return drawn_fit(sampler_of(model, settings, Gibbs), model, settings, "gibbs")


def suited(model: Model, usual: Any) -> Any:
    """The sampler that a prior brings along, or the usual one; for point masses one that needs less of the loss."""
    sampler = getattr(model.prior, "sampler", usual)
    if sampler is usual or all(hasattr(model.loss, name) for name in sampler.needs_loss):
        return sampler
    if not hasattr(model.prior, "slab_precision"):
        raise ValueError("a prior with point masses and random effects is for likelihood='hinge'; choose one of them.")
    return CollapsedGibbs


def sampler_of(model: Model, settings: Settings, usual: Any) -> Any:
    """The suited sampler with the options that it knows."""
    sampler = suited(model, usual)
    names = {field.name for field in fields(sampler)}
    options: dict[str, Any] = dict(options_of(settings, *(names - {"chains", "warmup"})))
    if "warmup" in names:
        options["warmup"] = settings.warmup
    built = sampler(chains=settings.chains, **options)
    around = getattr(model.prior, "around", None)
    return built if around is None or sampler is usual else around(built)


def _hmc(model: Model, settings: Settings, first: Fit | None) -> Fit:
    if hasattr(model.prior, "sampler"):
        raise ValueError("a prior with point masses has draws of its own: use inference='gibbs'.")
    if model.dimension < model.size:
        raise ValueError("inference='hmc' is for two classes or pairs of them; use 'gibbs', or multi_class='pairwise'.")
    if hasattr(model.blocks.design, "entries"):
        raise ValueError("inference='hmc' needs a matrix of rows or columns, and solver='cg' has none; use 'gibbs'.")
    if model.dimension > 2 * len(model.y):
        raise ValueError("inference='hmc' with so many columns is for the ridge prior; use inference='gibbs'.")
    options: dict[str, Any] = dict(options_of(settings, "scale_moves"))
    engine = HMC(chains=settings.chains, **options)
    # tuned before the first sweep, the chains forget their start within a few
    fit = drawn_fit(engine, model, replace(settings, warmup=min(settings.warmup, _BURN_IN)), "hmc")
    health = engine.diagnostics(fit.outcome.state)
    rate = float(health["acceptance"].min())
    if health["stuck"].any() or rate < _ACCEPTED:
        notice = (
            f"a chain of hmc hardly moves (acceptance {rate:.2f}); use inference='gibbs', or a prior that shrinks more."
        )
        return fit._replace(notice=notice)
    return fit


def drawn_fit(engine: Any, model: Model, settings: Settings, label: str) -> Fit:
    """Run chains, keep their draws, and read the posterior off them."""
    require(engine, loss=model.loss, prior=model.prior)
    sweeps = settings.warmup + settings.draws * settings.thin
    draws = np.empty((settings.draws, settings.chains, model.size))
    scale, loglik = np.empty((2, settings.draws, settings.chains))
    mean = np.zeros(model.size)
    recorded: dict[str, Array] = {}
    batches = np.zeros((settings.chains, _BATCHES, 1))
    average = settings.readout.averager(model)
    every = max(1, settings.draws // (_CAVITIES if model.size <= 500 else _CAVITIES // 5))
    kept = 0
    current = Outcome(None)

    def keep(iteration: int, info: Info) -> bool:
        nonlocal kept, mean, batches
        past = iteration - settings.warmup
        if past > 0 and past % settings.thin == 0:
            for k, chain in enumerate(current.state):
                draws[kept, k], scale[kept, k] = chain.beta, chain.prior.values["scale"]
                loglik[kept, k] = chain.loglik
                mean += getattr(chain, "mean", chain.beta)
                if hasattr(chain, "inclusion"):
                    if batches.shape[-1] != len(chain.inclusion):
                        batches = np.zeros((*batches.shape[:2], len(chain.inclusion)))
                    batches[k, kept * _BATCHES // settings.draws] += chain.inclusion
                for name, value in _noted(chain).items():
                    recorded.setdefault(name, np.empty_like(scale))[kept, k] = value
            if average is not None and kept % every == 0:
                average.add(current.state[(kept // every) % settings.chains], iteration)
            kept += 1
        return bool(settings.callback and settings.callback(iteration, info))

    progress = settings.progress(label, sweeps)
    outcome = run(engine, model, max_iter=sweeps, progress=progress, callback=keep, outcome=current)
    if kept < 2:
        raise KeyboardInterrupt("interrupted before two draws were kept")
    outcome.converged = kept == settings.draws
    draws = np.ascontiguousarray(draws[:kept].swapaxes(0, 1))
    scale, loglik = scale[:kept].T.copy(), loglik[:kept].T.copy()
    flat = draws.reshape(-1, model.size)
    root = _spread(flat)
    values = {name: column[:kept].T.copy() for name, column in recorded.items()}
    posterior = settings.readout.draws(mean / (kept * settings.chains), root, scale, draws, loglik, values)
    held = settings.readout.of_draws(model, flat, scale.ravel(), average)
    selected = None
    if hasattr(current.state[0], "inclusion"):
        used = (draws != 0.0).mean(axis=1).reshape(settings.chains, -1, batches.shape[-1]).max(axis=1)
        selected = Inclusion.from_batches(batches, kept, settings.draws, used)
    return Fit(posterior, held, float(np.exp(np.log(scale).mean())), outcome, inclusion=selected)


def _noted(chain: Any) -> dict[str, float]:
    """Numbers of a chain's state worth recording beside its scale."""
    values = {name: value for name, value in chain.prior.values.items() if name != "scale"}
    return values | ({"size": float(chain.gamma.sum())} if hasattr(chain, "gamma") else {})


def _spread(draws: Array) -> Array:
    """A root of the covariance of draws; with more coefficients than draws, of at most ``_THINNED`` of them."""
    if draws.shape[1] > _THINNED:
        draws = draws[:: max(1, len(draws) // _THINNED)]
        return np.ascontiguousarray((draws - draws.mean(axis=0)).T / np.sqrt(max(len(draws) - 1, 1)))
    root = np.asarray(np.linalg.qr(draws - draws.mean(axis=0), mode="r")).T / np.sqrt(max(len(draws) - 1, 1))
    return np.ascontiguousarray(root)


INFERENCES: dict[str, Callable[[Model, Settings, Fit | None], Fit]] = {
    "map": _map,
    "vb": _vb,
    "meanfield": _meanfield,
    "gibbs": _gibbs,
    "hmc": _hmc,
}
