"""One command for all papers: it rehearses every section, and goes on where it was stopped."""

import os

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("arviz")

needs_data = pytest.mark.skipif(not os.environ.get("SOFTMARGIN_DATA"), reason="needs the data of the papers")


@needs_data
@pytest.mark.soak
def test_all_papers_are_rehearsed_by_one_command(tmp_path):
    from replication.__main__ import DONE, SECTIONS, main

    main(["--quick", "--output", str(tmp_path)])
    page = (tmp_path / "replication.md").read_text(encoding="utf-8")
    assert (tmp_path / DONE).exists()
    for name in set(SECTIONS) - {"masking"}:
        assert len(page.split(f"<!-- {name}:begin -->")[1].split(f"<!-- {name}:end -->")[0].strip()) > 100


@needs_data
def test_sections_that_are_done_are_not_run_again(tmp_path, capsys):
    from replication.__main__ import main

    first = ["--quick", "--output", str(tmp_path), "--sections", "masking"]
    main(first)
    assert "== masking" in capsys.readouterr().out
    main(first)
    assert "== masking" not in capsys.readouterr().out
    main([*first, "--again"])
    assert "== masking" in capsys.readouterr().out
