"""compose.yaml and what it starts: in a form that Docker takes, pinned, with every file there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMPOSE = (ROOT / "compose.yaml").read_text()


def test_compose_yaml_is_what_docker_takes() -> None:
    pytest.importorskip("check_jsonschema")
    command = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec")
    checked = subprocess.run((*command, str(ROOT / "compose.yaml")), capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_image_is_pinned_and_every_file_is_there() -> None:
    images = re.findall(r"^ +image: (\S+)$", COMPOSE, re.M)
    images += re.findall(r"^FROM (\S+)", (ROOT / "docker" / "Dockerfile").read_text(), re.M)
    assert len(images) >= 6
    assert all(re.fullmatch(r"[a-z0-9/-]+:\d+\.\d+\.\d+[a-z0-9.-]*", image) for image in images), images
    named = re.findall(r"(docker/\S+)", COMPOSE)
    assert named
    assert all((ROOT / name).is_file() for name in named)
    balanced = set(re.findall(r"^ +server \w+ ([a-z0-9-]+):8800", (ROOT / "docker/haproxy.cfg").read_text(), re.M))
    assert balanced == set(re.findall(r"^  (sidecar-\S+):\n    <<: \*sidecar", COMPOSE, re.M))
