"""Memory that is free: of the machine, or of the container if that is less."""

import numpy as np

from softmargin.rows import memory


def test_the_container_may_have_less_than_the_machine(tmp_path, monkeypatch):
    machine, limit, used = tmp_path / "meminfo", tmp_path / "max", tmp_path / "current"
    machine.write_text("MemTotal:  16000 kB\nMemAvailable:  8000 kB\n")
    monkeypatch.setattr(memory, "_MEMORY", machine)
    monkeypatch.setattr(memory, "_LIMIT", limit)
    monkeypatch.setattr(memory, "_USED", used)
    assert memory.available() == 8000 * 1024
    limit.write_text("max\n")
    used.write_text("1000\n")
    assert memory.available() == 8000 * 1024
    limit.write_text("5000\n")
    assert memory.available() == 4000
    machine.write_text("nothing known\n")
    assert memory.available() == 4000


def test_this_machine_has_some():
    assert memory.available() > 0 and (np.isinf(memory.available()) or memory.available() < 1e15)
