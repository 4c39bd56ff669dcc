"""scikit-learn's callback protocol where the installed version has it, and nothing where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from softmargin.core.validation import fitted

__all__ = ["CallbackSupport", "fit_tasks", "managed"]

F = TypeVar("F", bound=Callable[..., Any])

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupport
    from sklearn.callback import with_callbacks as managed
except ImportError:  # scikit-learn before 1.9

    class CallbackSupport:  # type: ignore[no-redef]
        """Stands in for the mixin of newer versions."""

    def managed(method: F) -> F:
        return method


def fit_tasks(estimator: Any, X: Any, y: Any) -> tuple[Callable[[int, Any], bool], Callable[[], None]]:
    """A loop callback that reports each iteration as a task, and a function that ends the fit task."""
    if not fitted(estimator, "_skl_callbacks"):
        return (lambda iteration, info: False), (lambda: None)
    root = estimator._init_callback_context(max_subtasks=None)
    root.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def each(iteration: int, info: Any) -> bool:
        task = root.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return bool(task.call_on_fit_task_end(estimator=estimator, X=X, y=y))

    def end() -> None:
        root.call_on_fit_task_end(estimator=estimator, X=X, y=y)

    return each, end
