"""Measurements that anybody can repeat: ``python -m benchmarks.overhead``, ``python -m benchmarks.first_audio``."""
