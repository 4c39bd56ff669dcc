"""Tasks on threads: their order, and that none outlives an error or an interruption."""

import signal
import threading
import time

import pytest

from softmargin.rows.threads import on_threads


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_the_tasks(workers):
    tasks = [lambda k=k: (time.sleep(0.01 * (4 - k)), k)[1] for k in range(5)]
    assert on_threads(tasks, workers, threading.Event()) == [0, 1, 2, 3, 4]


def until(stop):
    return lambda: stop.wait(30.0)


def test_no_thread_outlives_an_error():
    stop, before = threading.Event(), threading.active_count()

    def fails():
        raise ValueError("a sentence")

    with pytest.raises(ValueError, match="a sentence"):
        on_threads([until(stop), fails, until(stop)], 2, stop)
    assert threading.active_count() == before and stop.is_set()


def test_an_interruption_lets_the_tasks_give_back_what_they_have():
    stop, before = threading.Event(), threading.active_count()
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.start()
    try:
        assert on_threads([until(stop)] * 2, 2, stop) == [True, True]
    finally:
        timer.join()
        signal.signal(signal.SIGINT, handler)
    assert threading.active_count() == before
