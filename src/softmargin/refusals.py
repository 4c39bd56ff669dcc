"""What does not go together and why, in one table: every such refusal is a sentence of it."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["REFUSALS", "Refusal", "refused"]


class Refusal(NamedTuple):
    """Two choices that exclude each other; the sentence says why, and the way out."""

    first: str
    second: str
    sentence: str


_POINT = "a prior with point masses (`SpikeSlab`, `LaplaceZero`)"
_JOINT = "`multi_class='crammer-singer'`"

REFUSALS: dict[str, Refusal] = {
    "no mode": Refusal(
        "`inference='map'`",
        "a prior without a mode away from zero (`Horseshoe`, `LaplaceZero`)",
        "this prior has no mode away from zero; use inference='vb' or 'gibbs', or another prior.",
    ),
    "no joint mode": Refusal(
        "`inference='map'` with `starts`",
        "a half-t or half-Cauchy hyperprior that was given",
        "the joint mode under a half-t or half-Cauchy scale degenerates at zero; use InverseGamma(a, b) as the "
        "hyperprior, a fixed scale, or another inference.",
    ),
    "no joint mode of a covariance": Refusal(
        "a joint mode with its covariance",
        "random effects",
        "the joint mode of random effects and their covariance degenerates; fix it at the values of a variational fit, "
        "or use another inference.",
    ),
    "spike-and-slab without draws": Refusal(
        "`inference='map'`, `'vb'`, `'meanfield'`",
        "`SpikeSlab`",
        "a spike-and-slab prior needs draws: use inference='gibbs'.",
    ),
    "learned exponent without draws": Refusal(
        "`inference='map'`, `'vb'`, `'meanfield'`",
        "`Bridge(alpha='learn')`",
        "alpha='learn' needs draws: use inference='gibbs', or give alpha a number.",
    ),
    "learned exponent of classes": Refusal(
        "`multi_class='sum-to-zero'`",
        "`Bridge(alpha='learn')`",
        "alpha='learn' is for two classes; give alpha a number.",
    ),
    "groups of classes": Refusal(
        "`multi_class='sum-to-zero'`",
        "`GroupLasso(groups=...)`",
        "with several classes in one model the group of a variable is its coefficients over the classes; leave groups "
        "out of GroupLasso, or use multi_class='pairwise'.",
    ),
    "means of point masses": Refusal(
        "`Centred`",
        _POINT,
        "a column that {prior} leaves out has the coefficient zero, whatever its mean; use Centred with Ridge, Lasso "
        "or Horseshoe.",
    ),
    "means beside point masses": Refusal(
        "`Centred` in a dict of priors",
        _POINT,
        "the prior of {key} has means and that of {other} leaves columns out; use prior means beside priors such as "
        "Ridge, Lasso or Horseshoe.",
    ),
    "means of classes": Refusal(
        "`Centred`",
        "more than two classes",
        "prior means are those of two classes or a response, and y has {classes} classes; fit one class against the "
        "rest, or leave the means out.",
    ),
    "means along a path": Refusal(
        "`Centred`",
        "`path`, `engine_options={'algorithm': 'newton'}`",
        "{what} is for priors around zero; fit with inference='map' at one scale after another, without an algorithm.",
    ),
    "hmc of point masses": Refusal(
        "`inference='hmc'`",
        _POINT,
        "a prior with point masses has draws of its own: use inference='gibbs'.",
    ),
    "hmc without matrices": Refusal(
        "`inference='hmc'`",
        "`solver='cg'`",
        "inference='hmc' needs a matrix of rows or columns, and solver='cg' has none; use 'gibbs'.",
    ),
    "hmc of wide data": Refusal(
        "`inference='hmc'`",
        "more than two coefficients per row",
        "inference='hmc' takes at most two coefficients per row, and {size} are more for {rows} rows; use "
        "inference='gibbs', or a ridge prior with solver='auto'.",
    ),
    "batches of incomplete rows or groups": Refusal(
        "`inference='svi'`",
        "missing values, random effects, priors by column",
        "inference='svi' takes complete rows without random effects and one prior for all columns; use 'vb'.",
    ),
    "batches of point masses": Refusal(
        "`inference='svi'`",
        _POINT,
        "inference='svi' does not go with priors that select; use inference='gibbs'.",
    ),
    "batches without rows": Refusal(
        "`inference='svi'`",
        "`solver='cg'`",
        "inference='svi' needs rows, and solver='cg' has products alone; use inference='vb'.",
    ),
    "stream of wide rows": Refusal(
        "`partial_fit`",
        "a first call with more columns than rows",
        "partial_fit holds a matrix of the columns from the first call on: give that call more rows than columns, or "
        "solver='cholesky'.",
    ),
    "balanced stream": Refusal(
        "`partial_fit`",
        "`class_weight='balanced'`",
        "class_weight='balanced' needs the shares of all rows, which partial_fit does not know: give the weights as a "
        "dict.",
    ),
    "stream of scores": Refusal(
        "`partial_fit`",
        "one model of more than two classes",
        "{scheme} has no partial_fit; use multi_class='pairwise'.",
    ),
    "temperature": Refusal(
        "`engine_options={'temperature': ...}`",
        "a learned scale, or a prior other than ridge, lasso, bridge",
        "temperature needs a ridge, lasso or bridge prior with a fixed scale, as in Lasso(scale=1.0).",
    ),
    "point masses beside effects": Refusal(
        "random effects",
        "a prior with point masses of your own, without `beside`",
        "{prior} does not go with random effects; use SpikeSlab.",
    ),
    "correlated effects": Refusal(
        "`RandomEffect(..., covariance='full')`",
        "missing values, a prior that selects, `inference='hmc'`, `multi_class='sum-to-zero'`",
        "{reason} needs uncorrelated effects: use RandomEffect(..., covariance='diagonal').",
    ),
    "many groups": Refusal(
        "more than 3000 coefficients of groups",
        "missing values, a prior that selects, `inference='hmc'`, `multi_class='sum-to-zero'`",
        "{reason} needs a column for every group, and {size} coefficients are more than {most}; {way}.",
    ),
    "a prior of one block": Refusal(
        "`multi_class='sum-to-zero'`",
        "a prior of your own whose `bind` does not take `classes`",
        "{prior}.bind(free, rows) does not take classes=k, the blocks of coefficients that multi_class='sum-to-zero' "
        "has; write it, or use multi_class='pairwise'.",
    ),
    "Laplace-zero of classes": Refusal(
        "`multi_class='sum-to-zero'`",
        "`LaplaceZero`",
        "LaplaceZero is for two classes or pairs of them; use SpikeSlab or multi_class='pairwise'.",
    ),
    "products of classes": Refusal(
        "`solver='cg'`",
        "`multi_class='sum-to-zero'`, `'crammer-singer'`",
        "solver='cg' is for two classes or pairs of them; use multi_class='pairwise', or 'auto'.",
    ),
    "products of dense columns": Refusal(
        "`solver='cg'`",
        "a dense X",
        "solver='cg' works on a sparse X; convert it with scipy.sparse.csr_matrix, or use 'auto'.",
    ),
    "other losses of classes": Refusal(
        "`multi_class='sum-to-zero'`, `'crammer-singer'`",
        "a likelihood other than the hinge",
        "{scheme} is for likelihood='hinge'; use multi_class='pairwise'.",
    ),
    "scores of groups": Refusal(
        _JOINT, "random effects", "{scheme} has no random effects; use multi_class='pairwise' or 'sum-to-zero'."
    ),
    "scores of incomplete rows": Refusal(
        _JOINT, "missing values", "{scheme} does not take missing values; use multi_class='pairwise' or 'sum-to-zero'."
    ),
    "scores by batches": Refusal(
        _JOINT, "`inference='svi'`", "{scheme} is not fitted by batches; use multi_class='pairwise' or 'sum-to-zero'."
    ),
    "scores with costs": Refusal(_JOINT, "`costs`", "{scheme} has no costs; use multi_class='sum-to-zero'."),
    "scores by another inference": Refusal(
        _JOINT,
        "`inference='vb'`, `'meanfield'`, `'hmc'`",
        "multi_class='crammer-singer' has inference 'map' and 'gibbs', not {inference}; choose one of them, or "
        "multi_class='pairwise'.",
    ),
    "scores with another prior": Refusal(
        _JOINT,
        "a prior other than `Ridge`",
        "multi_class='crammer-singer' has the ridge prior alone; use multi_class='sum-to-zero'.",
    ),
    "formula on a device": Refusal(
        "draws of a loss with rows on a GPU",
        "a loss whose draws need rejection (`Logit`, `Probit`, `CompleteHinge`, ...)",
        "{loss} draws its latents by rejection, which is not done on a GPU; use inference='hmc' or 'vb', the hinge, or "
        "bring the rows home with cupy.asnumpy(X) or X.cpu().numpy().",
    ),
    "fractional weights": Refusal(
        "draws by a loss that takes weights as copies (`Probit`, `NoisyHinge`, `CompleteHinge`)",
        "weights that are not whole numbers",
        "{loss} draws a row of weight c as c copies, so weights must be whole numbers and one is {weight}; use whole "
        "weights, the hinge or logit loss, or an inference without draws.",
    ),
    "heavy weights": Refusal(
        "draws by a loss that takes weights as copies",
        "weights of more than a million in all",
        "{loss} draws a row of weight c as c copies, at most {most} in all, and the weights sum to {weight}; use "
        "smaller weights, the hinge or logit loss, or an inference without draws.",
    ),
    "likelihood of a kernel": Refusal(
        "`BayesianKernelClassifier(likelihood=...)`",
        "a basis or an inference that it has no algorithm for",
        "likelihood={likelihood} does not go with basis={basis}, inference={inference}; it goes with {known}.",
    ),
    "kernels of files": Refusal(
        "`BayesianKernelClassifier`, `BayesianKernelRegressor`",
        "X in files",
        "kernel models take rows in memory, and X={path} is a path: read it first, for example with numpy.load or "
        "pandas.read_parquet, or fit BayesianSVC or BayesianSVR, which read files.",
    ),
    "selection of many columns": Refusal(
        "`SpikeSlab` with a loss other than the hinge",
        "very many columns",
        "a spike-and-slab prior with {loss} is for at most {most} columns; X has {size}: screen them first, or use "
        "likelihood='hinge'.",
    ),
    "selection of many classes": Refusal(
        "`SpikeSlab` with `multi_class='sum-to-zero'`",
        "very many columns",
        "selecting variables for all classes keeps a square matrix of {size} dimensions, more than {most}; use "
        "prior='group-lasso', or fewer columns.",
    ),
    "effects elsewhere": Refusal(
        "X that is not in memory",
        "random effects, `groups`",
        "{kind} goes without random effects and groups; bring the rows into memory, or make columns of the groups.",
    ),
    "point masses elsewhere": Refusal(
        "X that is not in memory",
        _POINT,
        "{kind} does not go with priors that select, which scan the columns of all rows; bring the rows into memory, "
        "or use prior='ridge', 'lasso' or 'horseshoe'.",
    ),
    "scores elsewhere": Refusal(
        "X that is not in memory",
        "`multi_class='sum-to-zero'`, `'crammer-singer'` with more than two classes",
        "{kind} with more than two classes needs multi_class='pairwise'; use it, or bring the rows into memory.",
    ),
    "wide elsewhere": Refusal(
        "X that is not in memory",
        "more columns than rows, `solver='dual'`, `'cg'`",
        "{kind} needs more rows than columns and solver='auto' or 'cholesky', and has {rows} rows and {columns} "
        "columns with solver={solver!r}; bring the rows into memory.",
    ),
    "all rows elsewhere": Refusal(
        "X that is not in memory",
        "an inference that holds products of all rows, where there are very many",
        "this inference needs the rows in memory, and {kind} has {rows:,} rows of {columns:,} coefficients; use "
        "inference='vb', or bring the rows into memory.",
    ),
    "a part without what is needed": Refusal(
        "an engine or solver",
        "a part that does not offer what it needs, as one of your own may",
        "{consumer} needs a {kind} with '{name}', which {part} does not have; choose another inference or solver, or "
        "another {kind}.",
    ),
}


def refused(name: str, /, **given: Any) -> str:
    """The sentence of a refusal, with what was given in it."""
    return REFUSALS[name].sentence.format(**given)
