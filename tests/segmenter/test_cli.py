import subprocess
import sys


def test_shows_index_kind_span_text_and_speech() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "segmenter"],
        input="# Hi\nIt **works**. ```\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path)},
    )
    assert "  0 heading   [0, 5)       '# Hi\\n'\n    -> Hi\n" in done.stdout
    assert "-> It works." in done.stdout
