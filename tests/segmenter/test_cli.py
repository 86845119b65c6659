import subprocess
import sys


def _run(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "segmenter", *arguments],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={"PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path)},
    )


def test_shows_index_kind_span_text_timing_and_speech() -> None:
    done = _run("# Hi\nIt **works**. So it does. ```\n", "--chunk", "1")
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0] == "  0 heading   [0, 5)       '# Hi\\n'"
    assert lines[1].startswith("    +1 chars, ")
    assert lines[1].endswith(" us, pause 400 ms")
    assert lines[2] == "    -> Hi"
    assert "    -> It works." in lines
    assert lines[-1].endswith(" characters, language auto")


def test_wrong_options_are_told_in_one_line() -> None:
    done = _run("", "--max-chars", "3")
    assert done.returncode == 2
    assert "max_chars must be at least 40" in done.stderr
