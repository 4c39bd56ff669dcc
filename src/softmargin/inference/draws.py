"""Draws: which sampler, run and read as a posterior."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from softmargin.core.array import Array
from softmargin.core.chain import Chain
from softmargin.core.loop import Info, Outcome, run
from softmargin.core.model import Model
from softmargin.core.unknown import implied
from softmargin.engines.mode.annealing import tempered
from softmargin.engines.sampling.gibbs import gibbs
from softmargin.engines.sampling.hmc.hmc import diagnostics, hmc
from softmargin.engines.selection.collapsed import collapsed
from softmargin.engines.selection.spike_slab import spike_slab
from softmargin.inference.selecting import selecting_sampler
from softmargin.inference.settings import BATCHES, Fit, Inclusion, Settings, options_of, rough
from softmargin.inference.variational import fit_vb
from softmargin.priors.ridge import Ridge
from softmargin.refusals import refused
from softmargin.rows.memory import available
from softmargin.survival.watch import present

__all__ = [
    "ACCEPTED",
    "BURN_IN",
    "draw_by_gibbs",
    "draw_by_hmc",
    "drawn_fit",
    "left_out_by_vb",
    "suited",
    "without_selection",
]

_THINNED = 500  # draws behind the covariance of very many coefficients
_CAVITIES = 100  # sweeps that latent-wise leave-one-out moments are averaged over
BURN_IN = 100  # sweeps of hmc that are not kept, at most
ACCEPTED = 0.5  # acceptance below which hmc is not trusted


def suited(model: Model) -> Any:
    """The sampler that suits the prior; for point masses under a smooth loss, one that needs less of it."""
    sampler = selecting_sampler(model.prior)
    if sampler is None:
        return gibbs
    return collapsed if sampler is spike_slab and not model.loss.offers("pieces") else sampler


def _sampler_of(model: Model, settings: Settings) -> Any:
    """The suited sampler with the options that it knows.

    Heated companions of a chain are not offered beside unknowns: they would share them and change their density.
    """
    sampler = suited(model)
    names = set(signature(sampler).parameters) - {"unknowns"}
    own: dict[str, Any] = {"warmup": settings.warmup} if "warmup" in names else {}
    known = names - {"chains", "warmup"}
    if model.unknowns and "ladder" in names:
        known, own = known - {"ladder"}, own | {"ladder": ()}
    return sampler(chains=settings.chains, **options_of(settings, *known), **own)


def _tempered(model: Model, settings: Settings) -> tuple[Model, Settings]:
    """The posterior raised to the power 1/temperature, where the options ask for it."""
    options = dict(settings.options)
    temperature = options.pop("temperature", 1.0)
    if temperature == 1.0:
        return model, replace(settings, options=options)
    if isinstance(temperature, bool) or not (isinstance(temperature, (int, float)) and temperature > 0):
        raise ValueError(f"temperature must be a positive number; got {temperature!r}.")
    if not model.prior.offers("tempered") or model.prior.stretch(model.prior.start()) is not None:
        raise ValueError(refused("temperature"))
    hot = tempered(model, model.prior.start().values["scale"], float(temperature))
    return hot, replace(settings, options=options)


def draw_by_gibbs(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """Draws by the augmented sampler that suits the prior."""
    model, settings = _tempered(model, settings)
    fit = drawn_fit(_sampler_of(model, settings), model, settings, "gibbs")
    if model.unknowns:
        fit.outcome.state = None  # with the rows that samplers keep
    return fit


def draw_by_hmc(model: Model, settings: Settings, first: Fit | None = None) -> Fit:
    """Draws along trajectories around the variational fit."""
    _check_hmc(model)
    options: dict[str, Any] = dict(options_of(settings, "scale_moves"))
    # tuned before the first sweep, the chains forget their start within a few
    settings = replace(settings, warmup=min(settings.warmup, BURN_IN))
    unknowns = None
    if model.unknowns:
        quick = fit_vb(model, settings.aside()) if first is None else first
        if quick.outcome.interrupted:
            raise KeyboardInterrupt("interrupted while the chains were being prepared")
        unknowns = quick.outcome.state.unknowns
    fit = drawn_fit(hmc(model, settings.chains, unknowns=unknowns, **options), model, settings, "hmc")
    health = diagnostics(fit.outcome.state)
    rate, stuck = float(health["acceptance"].min()), bool(health["stuck"].any())
    if model.unknowns:
        fit.outcome.state = None  # with the rows that samplers keep
    if not stuck and rate >= ACCEPTED:
        return fit
    way = "use inference='gibbs', or a prior that shrinks more"
    return fit._replace(notice=f"a chain of hmc hardly moves (acceptance {rate:.2f}); {way}.")


def _check_hmc(model: Model) -> None:
    """Refuse what trajectories cannot do."""
    if model.prior.selects:
        raise ValueError(refused("hmc of point masses"))
    if model.blocks.design.offers("entries"):
        raise ValueError(refused("hmc without matrices"))
    if model.dimension > 2 * len(model.y):
        raise ValueError(refused("hmc of wide data", size=model.dimension, rows=len(model.y)))


class Drawn:
    """What is kept of the chains of a run: draws, numbers beside them, and averages over sweeps.

    ``skipped`` is the number of the iteration after which draws are kept.
    """

    def __init__(self, engine: Any, model: Model, settings: Settings, current: Outcome, skipped: int):
        self.engine, self.model, self.settings, self.current, self.skipped = engine, model, settings, current, skipped
        self.draws = np.empty((settings.chains, settings.draws, model.size))
        self.scale, self.loglik = np.empty((2, settings.draws, settings.chains))
        self.mean = np.zeros(model.size)
        self.recorded: dict[str, Array] = {}
        self.batches = np.zeros((settings.chains, BATCHES, 1))
        self.rows_known = not any(unknown.changes_rows for unknown in model.unknowns)
        self.average = settings.readout.averager(model) if self.rows_known else None
        self.collectors = tuple(unknown.collector() for unknown in model.unknowns)
        self.every = max(1, settings.draws // (_CAVITIES if model.size <= 500 else _CAVITIES // 5))
        self.kept = 0

    def __call__(self, iteration: int, info: Info) -> bool:
        """After a sweep; whether the user's callback wants an end."""
        past = iteration - self.skipped
        if past > 0 and past % self.settings.thin == 0:
            self._keep(iteration)
        return bool(self.settings.callback and self.settings.callback(iteration, info))

    def _keep(self, iteration: int) -> None:
        kept, chains, model = self.kept, self.current.state, self.model
        for k, chain in enumerate(chains):
            self.draws[k, kept], self.scale[kept, k] = chain.beta, chain.prior.values["scale"]
            self.loglik[kept, k] = chain.loglik
            self.mean += chain.mean
            if chain.inclusion is not None:
                if self.batches.shape[-1] != len(chain.inclusion):
                    self.batches = np.zeros((*self.batches.shape[:2], len(chain.inclusion)))
                self.batches[k, kept * BATCHES // self.settings.draws] += chain.inclusion
            for name, value in _noted(chain).items():
                self.recorded.setdefault(name, np.empty_like(self.scale))[kept, k] = value
        if self.average is not None and kept % self.every == 0:
            k = (kept // self.every) % self.settings.chains
            chain = self.engine.complete(model, chains[k], k, iteration)
            self.average.add(chain, iteration, implied(model, chain.unknowns) if model.unknowns else model)
        for chain in chains if model.unknowns else ():
            for collector, state in zip(self.collectors, chain.unknowns, strict=True):
                if collector is not None:
                    collector.add(state)
        self.kept += 1

    def gathered(self) -> dict[str, Any]:
        """All draws so far."""
        whole = {"mean": self.mean, "batches": self.batches, "average": self.average, "collectors": self.collectors}
        numbers = {name: column[: self.kept] for name, column in self.recorded.items()}
        rows = {"scale": self.scale[: self.kept], "loglik": self.loglik[: self.kept], "recorded": numbers}
        return whole | rows | {"draws": self.draws[:, : self.kept], "kept": self.kept}

    def restore(self, gathered: dict[str, Any]) -> None:
        """Have these draws again."""
        self.kept, self.mean, self.batches = gathered["kept"], gathered["mean"], gathered["batches"]
        self.average, self.collectors = gathered["average"], gathered["collectors"]
        self.draws[:, : self.kept] = gathered["draws"]
        self.scale[: self.kept], self.loglik[: self.kept] = gathered["scale"], gathered["loglik"]
        for name, column in gathered["recorded"].items():
            self.recorded[name] = np.empty_like(self.scale)
            self.recorded[name][: self.kept] = column


def drawn_fit(engine: Any, model: Model, settings: Settings, label: str) -> Fit:
    """Run chains, keep their draws, and read the posterior off them; chains of a fit before go on."""
    _check_memory(settings, model.size)
    since = present().behind()
    warmup = 0 if since else settings.warmup
    sweeps, current = warmup + settings.draws * settings.thin, Outcome(None)
    drawn = Drawn(engine, model, settings, current, since + warmup)
    watch: Any = {"progress": settings.progress(label, sweeps), "callback": drawn, "gathers": drawn}
    outcome = run(engine, model, max_iter=sweeps, outcome=current, main=True, since=since, **watch)
    kept = drawn.kept
    if kept < 2:
        raise KeyboardInterrupt("interrupted before two draws were kept")
    outcome.converged = kept == settings.draws
    draws = np.ascontiguousarray(drawn.draws[:, :kept])
    scale, loglik = drawn.scale[:kept].T.copy(), drawn.loglik[:kept].T.copy()
    flat = draws.reshape(-1, model.size)
    root = _spread(flat)
    values = {name: column[:kept].T.copy() for name, column in drawn.recorded.items()}
    posterior = settings.readout.draws(drawn.mean / (kept * settings.chains), root, scale, draws, loglik, values)
    if drawn.rows_known:
        held = settings.readout.of_draws(model, posterior, flat, scale.ravel(), drawn.average)
    else:  # rows are left out of the variational fit: draws do not tell what a row says of its own entries
        held = settings.readout.of_other(left_out_by_vb(model, settings), posterior)
    selected = None
    if current.state[0].inclusion is not None:
        used = (draws != 0.0).mean(axis=1).reshape(settings.chains, -1, drawn.batches.shape[-1]).max(axis=1)
        selected = Inclusion.from_batches(drawn.batches, kept, settings.draws, used)
    recorded = {name: np.asarray(values) for name, values in posterior.recorded.items()}
    noted = model.prior.start().values | recorded | {None: len(posterior.draws)}
    fit = Fit(posterior, held, float(np.exp(np.log(scale).mean())), outcome, inclusion=selected, values=noted)
    return fit._replace(unknowns=drawn.collectors)


def left_out_by_vb(model: Model, settings: Settings) -> Any:
    """Left-out predictors of a quick variational fit, under a normal prior where the prior has point masses."""
    quick = fit_vb(without_selection(model), rough(settings))
    return quick.held


def without_selection(model: Model) -> Model:
    """The model under a normal prior where its own has point masses."""
    prior: Any = model.prior
    if not prior.selects:
        return model
    if not prior.parts:
        return model.with_prior(Ridge().bind(model.free, len(model.y), classes=prior.classes))
    free = model.free[prior.parts[0].where]
    return model.with_prior(prior.with_fixed(Ridge().bind(free, len(model.y), classes=prior.classes)))


def _check_memory(settings: Settings, size: int) -> None:
    """Refuse draws that cannot be held, before the first of them."""
    total = settings.draws * settings.chains
    held = total + (2 * min(total, 2 * _THINNED) if size > _THINNED else total)  # with what their covariance takes
    need, free = 8.0 * held * size, available()
    if need > free:
        raise MemoryError(
            f"{settings.draws:,} draws of {settings.chains} chains of {size:,} coefficients take {need / 1e9:.3g} GB, "
            f"and {free / 1e9:.3g} GB are free: lower chains or draws; draws={max(2, settings.draws // 10)}, "
            f"thin={10 * settings.thin} keep one sweep of ten and run as many."
        )


def _noted(chain: Chain) -> dict[str, float]:
    """Numbers of a chain's state worth recording beside its scale."""
    values = {name: value for name, value in chain.prior.values.items() if name != "scale"}
    return values | dict(chain.noted)


def _spread(draws: Array) -> Array:
    """A root of the covariance of draws; with more coefficients than draws, of at most ``_THINNED`` of them."""
    if draws.shape[1] > _THINNED:
        draws = draws[:: max(1, len(draws) // _THINNED)]
        return np.ascontiguousarray((draws - draws.mean(axis=0)).T / np.sqrt(max(len(draws) - 1, 1)))
    root = np.asarray(np.linalg.qr(draws - draws.mean(axis=0), mode="r")).T / np.sqrt(max(len(draws) - 1, 1))
    return np.ascontiguousarray(root)
