"""Units behind a number: how they are written and what CLDR calls them (through Babel)."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from babel.core import Locale
from babel.numbers import format_decimal
from babel.units import format_unit

_LATIN = {
    "km": "length-kilometer", "Km": "length-kilometer", "Kg": "mass-kilogram",
    "m": "length-meter", "dm": "length-decimeter", "cm": "length-centimeter",
    "mm": "length-millimeter", "µm": "length-micrometer", "nm": "length-nanometer", "mi": "length-mile",
    "ft": "length-foot", "yd": "length-yard",
    "kg": "mass-kilogram", "g": "mass-gram", "mg": "mass-milligram", "µg": "mass-microgram", "t": "mass-tonne",
    "lb": "mass-pound", "lbs": "mass-pound", "oz": "mass-ounce",
    "l": "volume-liter", "L": "volume-liter", "dl": "volume-deciliter", "cl": "volume-centiliter",
    "ml": "volume-milliliter", "mL": "volume-milliliter",
    "km/h": "speed-kilometer-per-hour", "kmh": "speed-kilometer-per-hour", "kph": "speed-kilometer-per-hour",
    "mph": "speed-mile-per-hour", "m/s": "speed-meter-per-second",
    "°C": "temperature-celsius", "℃": "temperature-celsius", "°F": "temperature-fahrenheit",
    "℉": "temperature-fahrenheit", "°": "angle-degree",
    "kB": "digital-kilobyte", "KB": "digital-kilobyte", "MB": "digital-megabyte", "GB": "digital-gigabyte",
    "TB": "digital-terabyte", "PB": "digital-petabyte",
    "mW": "power-milliwatt", "W": "power-watt", "kW": "power-kilowatt", "MW": "power-megawatt", "GW": "power-gigawatt",
    "kWh": "energy-kilowatt-hour", "kcal": "energy-foodcalorie", "kJ": "energy-kilojoule",
    "V": "electric-volt", "mA": "electric-milliampere",
    "Hz": "frequency-hertz", "kHz": "frequency-kilohertz", "MHz": "frequency-megahertz", "GHz": "frequency-gigahertz",
    "hPa": "pressure-hectopascal", "bar": "pressure-bar",
    "µs": "duration-microsecond", "ms": "duration-millisecond", "s": "duration-second", "sec": "duration-second",
    "min": "duration-minute", "h": "duration-hour", "hr": "duration-hour", "hrs": "duration-hour",
    "m²": "area-square-meter", "m2": "area-square-meter", "km²": "area-square-kilometer",
    "km2": "area-square-kilometer", "cm²": "area-square-centimeter", "ha": "area-hectare",
    "m³": "volume-cubic-meter", "m3": "volume-cubic-meter", "cm³": "volume-cubic-centimeter",
    "km³": "volume-cubic-kilometer", "px": "graphics-pixel", "MP": "graphics-megapixel", "dpi": "graphics-dot-per-inch",
}  # fmt: skip
_BY_LANGUAGE = {
    "de": {"Std": "duration-hour", "Min": "duration-minute", "Sek": "duration-second", "kcal": "energy-kilocalorie"},
    "fr": {"ko": "digital-kilobyte", "Mo": "digital-megabyte", "Go": "digital-gigabyte", "To": "digital-terabyte"},
    "ru": {
        "км": "length-kilometer", "м": "length-meter", "см": "length-centimeter", "мм": "length-millimeter",
        "кг": "mass-kilogram", "г": "mass-gram", "мг": "mass-milligram", "т": "mass-tonne", "л": "volume-liter",
        "мл": "volume-milliliter", "км/ч": "speed-kilometer-per-hour", "м/с": "speed-meter-per-second",
        "ч": "duration-hour", "мин": "duration-minute", "сек": "duration-second", "мс": "duration-millisecond",
        "Вт": "power-watt", "кВт": "power-kilowatt", "МВт": "power-megawatt", "кВт·ч": "energy-kilowatt-hour",
        "КБ": "digital-kilobyte", "МБ": "digital-megabyte", "ГБ": "digital-gigabyte", "ТБ": "digital-terabyte",
        "Гц": "frequency-hertz", "кГц": "frequency-kilohertz", "МГц": "frequency-megahertz",
        "ГГц": "frequency-gigahertz", "га": "area-hectare", "м²": "area-square-meter", "км²": "area-square-kilometer",
        "м³": "volume-cubic-meter", "°С": "temperature-celsius",
    },
}  # fmt: skip
_FEMININE_STEMS = {
    "de": "mile tonne ounce second minute hour kilowatt-hour foodcalorie kilocalorie",
    "fr": "tonne pound ounce second minute hour foodcalorie",
    "es": "mile inch tonne pound ounce hour hectare foodcalorie yard",
    "it": "tonne pound ounce hour foodcalorie yard",
    "pt": "mile inch tonne pound ounce hour foodcalorie yard",
    "ru": "mile tonne ounce second minute foodcalorie",
}
_SAMPLES = tuple(Decimal(sample) for sample in ("0", "1", "2", "5", "1.5", "1000000"))
_PREFIXES = ("milli", "micro", "nano")


def written_units(language: str) -> dict[str, str]:
    """Written form -> CLDR unit, longest forms first."""
    found = _LATIN | _BY_LANGUAGE.get(language, {})
    found |= {written.replace("µ", "μ"): unit for written, unit in found.items() if "µ" in written}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def is_feminine(language: str, unit: str) -> bool:
    """True if the unit's name (its first noun) is feminine in that language."""
    noun = unit.split("-", 1)[1].split("-per-")[0]
    for prefix in _PREFIXES:
        noun = noun.removeprefix(prefix)
    return noun in _FEMININE_STEMS.get(language, "").split()


@lru_cache(maxsize=4096)
def unit_pattern(locale: str, unit: str, plural: str) -> str:
    """The unit's long name around ``{0}`` for the number, in CLDR's plural category ``plural``."""
    form = Locale.parse(locale).plural_form
    sample = next((sample for sample in _SAMPLES if form(sample) == plural), _SAMPLES[3])
    named = str(format_unit(sample, unit, "long", locale=locale))
    number = str(format_decimal(sample, locale=locale))
    return named.replace(number, "{0}", 1)
