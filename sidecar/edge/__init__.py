"""Speech decoded where it is heard: codec tokens come over the wire, samples are made here."""

from sidecar.edge.client import EdgeClient, EdgeRequest
from sidecar.edge.session import Decoder, EdgeReport

__all__ = ["Decoder", "EdgeClient", "EdgeReport", "EdgeRequest"]
