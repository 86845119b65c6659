"""For every test: no law is judged by how fast the machine is just now."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("sidecar", deadline=None)
settings.load_profile("sidecar")
