"""What is foreign: engines, language models, stores, audio formats."""
