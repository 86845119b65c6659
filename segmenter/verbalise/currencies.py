"""Currencies: their signs and what people call them."""

from __future__ import annotations

from dataclasses import dataclass

from babel.numbers import get_currency_name

from segmenter.verbalise.language import by_plural

SIGNS = {
    "US$": "USD", "A$": "AUD", "C$": "CAD", "CA$": "CAD", "HK$": "HKD", "NZ$": "NZD", "R$": "BRL", "$": "USD",
    "€": "EUR", "£": "GBP", "¥": "JPY", "￥": "JPY", "₽": "RUB", "₩": "KRW", "₹": "INR", "₺": "TRY", "₴": "UAH",
}  # fmt: skip
"""Sign -> ISO 4217 code, where the language does not say otherwise."""

CODES = (
    "USD", "EUR", "GBP", "JPY", "CNY", "RMB", "RUB", "KRW", "INR", "CHF", "BRL", "CAD", "AUD", "NZD", "HKD", "SGD",
    "SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "TRY", "MXN", "ARS", "UAH", "TWD", "THB", "ZAR", "ILS", "AED",
)  # fmt: skip
"""ISO 4217 codes (and RMB) that are read as currencies beside a number."""

_OWN_SIGNS = {"zh": {"¥": "CNY", "￥": "CNY"}}
_NATIONAL_DOLLAR = {"MX": "MXN", "AR": "ARS", "CL": "CLP", "CO": "COP", "UY": "UYU"}


@dataclass(frozen=True, slots=True)
class Currency:
    """Names by CLDR plural category: ``one``, ``few``, else the last; likewise for a hundredth (empty: not said)."""

    names: tuple[str, ...]
    cents: tuple[str, ...] = ()
    feminine: bool = False
    cents_feminine: bool = False

    def name(self, plural: str) -> str:
        """The name in a plural category."""
        return by_plural(self.names, plural)

    def cent(self, plural: str) -> str:
        """The name of a hundredth in a plural category."""
        return by_plural(self.cents, plural)


def _c(names: str, cents: str = "", feminine: str = "") -> Currency:
    return Currency(tuple(names.split("/")), tuple(cents.split("/")) if cents else (), "f" in feminine, "c" in feminine)


_OWN = {
    "en": {
        "USD": _c("dollar/dollars", "cent/cents"), "EUR": _c("euro/euros", "cent/cents"),
        "GBP": _c("pound/pounds", "penny/pence"), "JPY": _c("yen"), "CNY": _c("yuan"), "RUB": _c("ruble/rubles"),
        "KRW": _c("won"), "INR": _c("rupee/rupees"), "BRL": _c("real/reais"), "CHF": _c("franc/francs"),
    },
    "de": {
        "USD": _c("Dollar", "Cent"), "EUR": _c("Euro", "Cent"), "GBP": _c("Pfund", "Penny/Pence"), "JPY": _c("Yen"),
        "CNY": _c("Yuan"), "RUB": _c("Rubel"), "KRW": _c("Won"), "INR": _c("Rupie/Rupien", "", "f"),
        "BRL": _c("Real"), "CHF": _c("Franken", "Rappen"),
    },
    "fr": {
        "USD": _c("dollar/dollars", "cent/cents"), "EUR": _c("euro/euros", "centime/centimes"),
        "GBP": _c("livre/livres", "penny/pence", "f"), "JPY": _c("yen/yens"), "CNY": _c("yuan/yuans"),
        "RUB": _c("rouble/roubles"), "KRW": _c("won/wons"), "INR": _c("roupie/roupies", "", "f"),
        "BRL": _c("real/reais"), "CHF": _c("franc/francs", "centime/centimes"),
    },
    "es": {
        "USD": _c("dólar/dólares", "centavo/centavos"), "EUR": _c("euro/euros", "céntimo/céntimos"),
        "GBP": _c("libra/libras", "penique/peniques", "f"), "JPY": _c("yen/yenes"), "CNY": _c("yuan/yuanes"),
        "RUB": _c("rublo/rublos"), "KRW": _c("won/wones"), "INR": _c("rupia/rupias", "", "f"),
        "BRL": _c("real/reales"), "CHF": _c("franco/francos", "céntimo/céntimos"),
        "MXN": _c("peso/pesos", "centavo/centavos"), "ARS": _c("peso/pesos", "centavo/centavos"),
        "CLP": _c("peso/pesos"), "COP": _c("peso/pesos"), "UYU": _c("peso/pesos"),
    },
    "it": {
        "USD": _c("dollaro/dollari", "centesimo/centesimi"), "EUR": _c("euro", "centesimo/centesimi"),
        "GBP": _c("sterlina/sterline", "penny/pence", "f"), "JPY": _c("yen"), "CNY": _c("yuan"),
        "RUB": _c("rublo/rubli"), "KRW": _c("won"), "INR": _c("rupia/rupie", "", "f"), "BRL": _c("real/reais"),
        "CHF": _c("franco/franchi", "centesimo/centesimi"),
    },
    "pt": {
        "USD": _c("dólar/dólares", "centavo/centavos"), "EUR": _c("euro/euros", "cêntimo/cêntimos"),
        "GBP": _c("libra/libras", "péni/pence", "f"), "JPY": _c("iene/ienes"), "CNY": _c("yuan/yuans"),
        "RUB": _c("rublo/rublos"), "KRW": _c("won/wons"), "INR": _c("rupia/rupias", "", "f"),
        "BRL": _c("real/reais", "centavo/centavos"), "CHF": _c("franco/francos", "cêntimo/cêntimos"),
    },
    "ru": {
        "USD": _c("доллар/доллара/долларов", "цент/цента/центов"), "EUR": _c("евро", "цент/цента/центов"),
        "GBP": _c("фунт/фунта/фунтов", "пенс/пенса/пенсов"), "JPY": _c("иена/иены/иен", "", "f"),
        "CNY": _c("юань/юаня/юаней"), "RUB": _c("рубль/рубля/рублей", "копейка/копейки/копеек", "c"),
        "KRW": _c("вона/воны/вон", "", "f"), "INR": _c("рупия/рупии/рупий", "", "f"),
        "BRL": _c("реал/реала/реалов"), "CHF": _c("франк/франка/франков"),
        "UAH": _c("гривна/гривны/гривен", "копейка/копейки/копеек", "fc"),
    },
    "zh": {
        "USD": _c("美元"), "EUR": _c("欧元"), "GBP": _c("英镑"), "JPY": _c("日元"), "CNY": _c("元"),
        "KRW": _c("韩元"),
    },
    "ja": {
        "USD": _c("ドル", "セント"), "EUR": _c("ユーロ", "セント"), "GBP": _c("ポンド"), "JPY": _c("円"),
        "CNY": _c("元"),
        "KRW": _c("ウォン"),
    },
    "ko": {
        "USD": _c("달러", "센트"), "EUR": _c("유로", "센트"), "GBP": _c("파운드"), "JPY": _c("엔"), "CNY": _c("위안"),
        "KRW": _c("원"),
    },
}  # fmt: skip


def code_of(written: str, language: str, region: str) -> str:
    """The ISO 4217 code of a sign or code as written."""
    if written == "$" and language == "es" and region in _NATIONAL_DOLLAR:
        return _NATIONAL_DOLLAR[region]
    own = _OWN_SIGNS.get(language, {})
    return own.get(written) or SIGNS.get(written) or ("CNY" if written == "RMB" else written)


def names_of(language: str) -> dict[str, str]:
    """People's names for currencies in that language -> ISO 4217 code."""
    return {name: code for code, money in _OWN.get(language, {}).items() for name in money.names}


def currency(code: str, language: str, locale: str) -> Currency:
    """What the currency is called: people's names for the common ones, CLDR's for the rest."""
    if found := _OWN.get(language, {}).get(code):
        return found
    counts = (1, 2, 5) if language == "ru" else (1, 2)
    names = (str(get_currency_name(code, count, locale=locale)) for count in counts)
    return Currency(tuple(name if language == "de" else name[0].lower() + name[1:] for name in names))
