"""Who may import whom, checked over the whole source tree.

A new module right under ``sidecar/`` belongs to the middle layer unless it is named in ``FRONT``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("segmenter", "voices", "sidecar", "adapters")
ALSO_READ = ("tests", "benchmarks")
MAX_LINES = 500

WIRED = ("wiring", "cli", "demo", "__main__")
"""Modules of ``sidecar`` that may name adapters."""

FRONT = (
    *WIRED,
    "serve",
    "server",
    "say",
    "doctor",
    "pull",
    "drift_cli",
    "voices_cli",
    "cli_options",
    "cli_voices",
    "bench",
    "relay",
    "edge",
)
"""Modules of ``sidecar`` that put the parts together or stand before them."""


@dataclass(frozen=True)
class Layer:
    """What modules may import of ours and of others, as dotted names with all below them (``a.b*``: ``a.bc`` too).

    ``except_`` is taken away from ``ours``. ``third_party`` None: any library. ``never``: parts of the standard
    library that are not for this layer.
    """

    name: str
    ours: tuple[str, ...]
    third_party: tuple[str, ...] | None = ()
    except_: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    may_await: bool = True


BASE = ("segmenter", "voices", "sidecar.core", "sidecar.ports", "sidecar.faults")
WAITING = (
    "asyncio",
    "concurrent",
    "multiprocessing",
    "select",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "threading",
)

OURS = ("sidecar", "segmenter", "voices")
STARTERS = tuple(f"sidecar.{name}" for name in WIRED if name != "wiring")
FRONT_MODULES = tuple(f"sidecar.{name}" for name in FRONT)

SEGMENTER = Layer("segmenter", ("segmenter",), ("babel", "pysbd", "unicode_rbnf"))
VOICES = Layer("voices", ("voices",), ("numpy", "scipy"))
CORE = Layer("sidecar.core", BASE, ("numpy",), never=(*WAITING, "time"), may_await=False)
PORTS = Layer("sidecar.ports and sidecar.faults", BASE, ("numpy",), never=WAITING)
MIDDLE = Layer(
    "the middle of sidecar",
    OURS,
    ("anyio", "numpy", "prometheus_client", "safetensors"),
    except_=("sidecar.http", "sidecar.config*", *FRONT_MODULES),
)
CONFIG = Layer("sidecar.config", (*BASE, "sidecar.config*", "sidecar.gate", "sidecar.redaction"))
HTTP = Layer("sidecar.http", OURS, ("litestar", "msgspec", "multipart", "numpy", "uvicorn"), except_=FRONT_MODULES)
FRONT_LAYER = Layer("the front of sidecar", OURS, None, except_=STARTERS)
WIRED_LAYER = Layer("wiring", PACKAGES, None)

RESTRICTED = {
    "torch": ("adapters/engines/qwen3_tts/",),
    "torchaudio": ("adapters/engines/qwen3_tts/",),
    "redis": ("adapters/stores/redis.py",),
    "openai": ("adapters/llm/", "sidecar/demo.py", "sidecar/cli.py"),
    "litestar": ("sidecar/http/", "sidecar/wiring.py", "sidecar/cli.py"),
    "prometheus_client": ("sidecar/telemetry.py",),
    "uvicorn": ("sidecar/http/", *(f"sidecar/{name}.py" for name in FRONT)),
}
"""Libraries that may be imported in these places only, whatever the layer allows."""

UNPICKLERS = ("pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")
UNPICKLING_CALLS = ("torch.load", "torch.jit.load", "torch.hub.load", "torch.package", "numpy.lib.format.read_array")

LEFT_OVER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def layer_of(path: str) -> Layer:
    """The layer of a source file, given relative to the root."""
    first, *rest = path.removesuffix(".py").split("/")
    if first == "segmenter":
        return SEGMENTER
    if first == "voices":
        return VOICES
    if first == "adapters":
        folder = ".".join(["adapters", *rest[:-1][:1]])
        return Layer("adapters", (folder, "voices", "sidecar.ports", "sidecar.faults"), None)
    if rest[0] == "core":
        return CORE
    if rest[0] == "http":
        return HTTP
    if rest[0] in ("ports", "faults"):
        return PORTS
    if rest[0].startswith("config"):
        return CONFIG
    if rest[0] in WIRED:
        return WIRED_LAYER
    if rest[0] in FRONT:
        return FRONT_LAYER
    return MIDDLE


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every import with its line, as dotted name of module or member; relative ones begin with a dot."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom():
                base = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if _name(func) in (
                "importlib.import_module",
                "import_module",
                "__import__",
            ):
                yield node.lineno, name


def _name(node: ast.AST) -> str:
    """``a.b.c`` of a chain of attributes, else an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr) if base := _name(value):
            return f"{base}.{attr}"
        case _:
            return ""


def _within(target: str, prefixes: tuple[str, ...]) -> bool:
    return any(
        target.startswith(prefix[:-1]) if prefix.endswith("*") else f"{target}.".startswith(f"{prefix}.")
        for prefix in prefixes
    )


def import_problem(path: str, target: str) -> str | None:
    """What is wrong with an import in a file, if anything."""
    top = target.partition(".")[0]
    layer = layer_of(path)
    if not top:
        return "imports are absolute"
    if top in UNPICKLERS:
        return f"{top} runs code that it reads: nobody imports it"
    if top in RESTRICTED and not path.startswith(RESTRICTED[top]):
        return f"{top} may be imported only in {', '.join(RESTRICTED[top])}"
    if top in PACKAGES:
        allowed = _within(target, layer.ours) and not _within(target, layer.except_)
        allowed = allowed or target == "sidecar.__version__"
        return None if allowed else f"{layer.name} may not import {target}"
    if top in sys.stdlib_module_names:
        return f"{layer.name} does without {top}" if _within(target, layer.never) else None
    if layer.third_party is None or top in layer.third_party:
        return None
    return f"{layer.name} may not import the library {top}"


def code_problems(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Rules about imports, unpickling and waiting."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known.update((a.asname, a.name) if a.asname else (a.name.partition(".")[0],) * 2 for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            known.update((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
    for line, target in imports(tree):
        problem = import_problem(path, target)
        if problem is None and _within(target, UNPICKLING_CALLS):
            problem = f"{target} unpickles: nobody uses it"
        if problem:
            yield line, problem
    may_await = layer_of(path).may_await
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = _name(node).partition(".")
            if f"{known.get(first, first)}.{rest}" in UNPICKLING_CALLS:
                yield node.lineno, f"{known.get(first, first)}.{rest} unpickles: nobody uses it"
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                yield node.lineno, "allow_pickle unpickles: nobody uses it"
        elif not may_await and isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield node.lineno, f"{layer_of(path).name} never waits"


def text_problems(text: str) -> Iterator[tuple[int, str]]:
    """Rules about any file."""
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield len(lines), f"a file has at most {MAX_LINES} lines"
    for number, line in enumerate(lines, 1):
        if found := LEFT_OVER.search(line):
            yield number, f"{found[0]} left over"


def problems_in(root: Path) -> list[str]:
    """Every breach of a rule below ``root``, as ``file:line: rule``."""
    found: list[str] = []
    for folder in (*PACKAGES, *ALSO_READ):
        for file in sorted((root / folder).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            problems = list(text_problems(text))
            if folder in PACKAGES:
                problems += code_problems(path, ast.parse(text, path))
            found += [f"{path}:{line}: {problem}" for line, problem in sorted(set(problems))]
    return found


def test_the_source_tree_keeps_its_rules() -> None:
    found = problems_in(ROOT)
    assert not found, "\n" + "\n".join(found)


def test_the_whole_tree_is_read() -> None:
    for package in PACKAGES:
        assert list((ROOT / package).rglob("*.py")), package


# ---------------------------------------------------------------- does the checker see?
@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("segmenter/a.py", "import numpy", "segmenter may not import the library numpy"),
        ("segmenter/a.py", "from sidecar.ports import Pcm", "segmenter may not import sidecar.ports.Pcm"),
        ("segmenter/a.py", "def f():\n    import voices", "segmenter may not import voices"),
        ("voices/a.py", "import segmenter", "voices may not import segmenter"),
        ("voices/a.py", "import torch", "torch may be imported only in adapters/engines/qwen3_tts/"),
        ("sidecar/core/a.py", "import asyncio", "sidecar.core does without asyncio"),
        ("sidecar/core/a.py", "import asyncio.queues as q", "sidecar.core does without asyncio"),
        ("sidecar/core/a.py", "from time import monotonic", "sidecar.core does without time"),
        ("sidecar/core/a.py", "async def f(): ...", "sidecar.core never waits"),
        ("sidecar/core/a.py", "from sidecar import reply", "sidecar.core may not import sidecar.reply"),
        ("sidecar/core/a.py", "import litestar", "litestar may be imported only in sidecar/http/"),
        ("sidecar/core/a.py", "import msgspec", "sidecar.core may not import the library msgspec"),
        ("sidecar/ports.py", "from sidecar.config import Config", "may not import sidecar.config.Config"),
        ("sidecar/faults.py", "import socket", "does without socket"),
        ("sidecar/reply.py", "from sidecar.http import app", "the middle of sidecar may not import sidecar.http.app"),
        ("sidecar/reply.py", "from sidecar.config import Config", "may not import sidecar.config.Config"),
        ("sidecar/reply.py", "import sidecar.wiring", "may not import sidecar.wiring"),
        ("sidecar/reply.py", "import redis", "redis may be imported only in adapters/stores/redis.py"),
        ("sidecar/reply.py", "import httpx", "may not import the library httpx"),
        ("sidecar/gate.py", "import prometheus_client", "prometheus_client may be imported only in"),
        ("sidecar/telemetry.py", "import uvicorn", "uvicorn may be imported only in"),
        ("sidecar/config_load.py", "from sidecar import reply", "sidecar.config may not import sidecar.reply"),
        ("sidecar/http/a.py", "from adapters.llm import x", "sidecar.http may not import adapters.llm.x"),
        ("sidecar/http/a.py", "from sidecar.wiring import build", "sidecar.http may not import sidecar.wiring.build"),
        ("sidecar/http/page/a.py", "import torch.nn", "torch may be imported only in"),
        ("sidecar/http/a.py", "import openai", "openai may be imported only in adapters/llm/"),
        ("sidecar/server.py", "import adapters.stores.local", "may not import adapters.stores.local"),
        ("sidecar/say.py", "from sidecar.cli import main", "may not import sidecar.cli.main"),
        ("sidecar/wiring.py", "import openai", "openai may be imported only in"),
        ("sidecar/wiring.py", "import torch", "torch may be imported only in"),
        ("adapters/llm/a.py", "from sidecar.http import wire", "adapters may not import sidecar.http.wire"),
        ("adapters/llm/a.py", "from sidecar import core", "adapters may not import sidecar.core"),
        ("adapters/llm/a.py", "import sidecar", "adapters may not import sidecar"),
        ("adapters/llm/a.py", "import segmenter", "adapters may not import segmenter"),
        ("adapters/llm/a.py", "from adapters.stores import local", "adapters may not import adapters.stores.local"),
        ("adapters/engines/qwen3_tts/a.py", "import adapters.audio.pcm", "may not import adapters.audio.pcm"),
        ("adapters/stores/local.py", "import redis", "redis may be imported only in adapters/stores/redis.py"),
        ("adapters/llm/a.py", "import litestar", "litestar may be imported only in"),
        ("adapters/a.py", "from . import llm", "imports are absolute"),
        ("adapters/a.py", "from ..x import y", "imports are absolute"),
        ("adapters/a.py", "import pickle", "pickle runs code that it reads"),
        ("adapters/a.py", "from marshal import loads", "marshal runs code that it reads"),
        ("adapters/a.py", "import importlib\nimportlib.import_module('shelve')", "shelve runs code"),
        ("adapters/a.py", "__import__('sidecar.core')", "adapters may not import sidecar.core"),
        ("adapters/a.py", "import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle unpickles"),
        ("adapters/engines/qwen3_tts/a.py", "import torch\nx = torch.load('x')", "torch.load unpickles"),
        ("adapters/engines/qwen3_tts/a.py", "import torch as t\nf = t.load", "torch.load unpickles"),
        ("adapters/engines/qwen3_tts/a.py", "from torch import load", "torch.load unpickles"),
        ("adapters/engines/qwen3_tts/a.py", "from torch import jit\njit.load('x')", "torch.jit.load unpickles"),
        ("adapters/a.py", "if TYPE_CHECKING:\n    from sidecar.core import feed", "may not import sidecar.core.feed"),
        ("sidecar/a.py", "x = 1  # TO" + "DO later", "left over"),
        ("tests/test_a.py", "# FIX" + "ME", "left over"),
        ("benchmarks/a.py", "x = 1\n" * 501, "a file has at most 500 lines"),
    ],
)  # fmt: skip
def test_a_breach_is_found_and_named(path: str, source: str, problem: str, tmp_path: Path) -> None:
    plant(tmp_path, path, source)
    found = problems_in(tmp_path)
    assert len(found) == 1
    line = len(source.splitlines()) if "\n" in source else 1
    assert found[0].startswith(f"{path}:{line}: ")
    assert problem in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("segmenter/a.py", "import re\nimport pysbd\nfrom segmenter.policy import x"),
        ("voices/a.py", "import numpy as np\nfrom scipy import signal\nimport voices.seeds"),
        ("sidecar/core/a.py", "import numpy\nfrom segmenter import Segment\nfrom sidecar.ports import Pcm"),
        ("sidecar/ports.py", "from collections.abc import AsyncIterator\nasync def f(): ..."),
        ("sidecar/reply.py", "import asyncio\nfrom sidecar.core import feed\nfrom sidecar.speech_line import x"),
        ("sidecar/telemetry.py", "import prometheus_client\nfrom sidecar import faults"),
        ("sidecar/config.py", "import tomllib\nfrom sidecar.gate import parse_entry"),
        ("sidecar/http/a.py", "import litestar\nimport msgspec\nfrom sidecar.config import Config"),
        ("sidecar/http/a.py", "from sidecar import __version__"),
        ("sidecar/wiring.py", "from adapters.llm.openai_chat import X\nfrom sidecar.http.app import y"),
        ("sidecar/demo.py", "import openai\nfrom adapters.stores import local\nfrom sidecar.wiring import build"),
        ("sidecar/serve.py", "import uvicorn\nfrom sidecar.wiring import build"),
        ("adapters/llm/a.py", "import openai\nfrom adapters.llm.sse import x\nfrom sidecar.ports import ChatDelta"),
        ("adapters/engines/qwen3_tts/a.py", "import torch\nimport json\njson.load(f)\nimport adapters.engines.rows"),
        ("adapters/stores/redis.py", "import redis.asyncio\nfrom sidecar import faults\nimport voices"),
        ("adapters/a.py", "import numpy\nnumpy.load('x', allow_pickle=False)\n# todo o nada"),
        ("tests/a.py", "import pickle, torch\nfrom sidecar.cli import main\n" + "x = 1\n" * 498),
    ],
)  # fmt: skip
def test_what_is_allowed_passes(path: str, source: str, tmp_path: Path) -> None:
    plant(tmp_path, path, source)
    assert problems_in(tmp_path) == []


def plant(root: Path, path: str, source: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
