"""Numbers, dates, amounts and their kind, written as words before they are spoken."""

from segmenter.verbalise.reader import LANGUAGES, verbalise

__all__ = ["LANGUAGES", "verbalise"]
