"""The embedded two-stage Qwen3-TTS runtime: talker and code predictor write codes, Code2Wav makes samples of them."""
