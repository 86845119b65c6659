"""The voices that work with nothing else: English, German, Spanish, French and Italian on a CPU.

``BuiltinEngine`` needs no network, no GPU and no model download; its models lie in the installed packages.
"""

import os

# Must be in the environment before onnxruntime is first imported, or it writes telemetry files below $HOME.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# g2p2 would fetch a missing language from the network; this engine never asks it to, and now it could not.
os.environ.setdefault("G2P2_MODELS_URL", "http://127.0.0.1:9/none")

from adapters.engines.builtin.engine import BuiltinEngine, BuiltinSettings

__all__ = ["BuiltinEngine", "BuiltinSettings"]
