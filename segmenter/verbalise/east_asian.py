"""Chinese, Japanese and Korean: numerals in the script of the language, so that no digit is left to guess."""

# Overrides keep the promises that are written in language.py.
# ruff: noqa: D102

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from segmenter.verbalise.context import Around
from segmenter.verbalise.language import GLUE, Form, Language, word_set
from segmenter.verbalise.literal import Number
from segmenter.verbalise.spelling import spell

_TWO_OF = re.compile(
    r"\s?(?:个|個|位|名|天|年|次|小时|小時|分钟|分鐘|周|种|種|件|本|条|條|张|張|只|隻|家|台|部|块|塊|杯|瓶|套|份|项|項|点|點|层"
    r"|層|岁|歲|倍|米|公里|公斤|斤|步|句|页|頁|人|座|辆|輛|把|支|颗|顆|片|篇|组|組|对|對|双|雙|间|間|秒|元|场|場|轮|輪|届|万|萬"
    r"|亿|億|千|百|道|根|头|頭|口|盒|包|袋|节|節|段|行|列|种|门|門|碗|勺|盘|盤|趟|遍|回|票|架|艘|棵|朵|匹|幅|封|笔|筆|代|股|吨|噸|克|升)"
)
_NATIVE = re.compile(
    r"\s?(?:개(?!월|국|년|소)|명|마리|권|잔|병(?!원)|살|시(?![가-힣])|시(?=에|부터|까지|쯤|이|가|를|는|은|의|로|반|정각)|가지|달(?!러)"
    r"|송이|그루|켤레|벌|군데|채|척|곳|배|사람|번(?!호|역)|장|통|줄|칸|쌍|판|자루|끼|편|바퀴|차례|걸음|시간|대)"
)
_NUMBERED = re.compile(r"\s?번\s(?:문제|출구|버스|국도|선수|타자|시드|홈|방|트랙|채널)")


class EastAsian(Language):
    """What the three share."""

    decimal_mark = "."
    blank_groups = False

    def and_fraction(self, whole: int, above: int, below: int) -> str | None:
        return self.join(self.plain(whole), self.whole_and, self.fraction(above, below) or "")

    whole_and = ""

    def over(self, above: int, below: int) -> str:
        return self.fraction(above, below) or ""


class Chinese(EastAsian):
    """Chinese. Two is 两 before measure words; years of four digits are said digit by digit."""

    spaced = False
    rules = "spellout-cardinal"
    zero_digit = "零"
    decimal_word = point_word = "点"
    minus, plus, plus_minus, cold = "负", "加", "正负", "零下"
    about, less, more, at_most, at_least = "约", "小于", "大于", "不超过", "至少"
    number_word, section_word = "第", "第"
    times, divided, equals, by = "乘以", "除以", "等于", "乘"
    to, ratio, out_of = "到", "比", ""
    percent, per_mille = "百分之", "千分之"
    squared, cubed = "的平方", "的立方"
    raised = "的{}次方"
    pause = "，"
    per_words: ClassVar[Mapping[str, str]] = {
        word: f"每{word}" for word in word_set("月 年 小时 天 人 次 周 分钟 秒 个 斤 公斤 平方米 股")
    }
    letters_stay = ("digital", "frequency")
    per_mille_first = True
    second_word = "秒"

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"([12][0-9]{3})(?=[ ]?年)"), self._year),
            (re.compile(r"([0-9]{3,4})(?=室|房间|号房)"), lambda found, _: self.digits(found[1])),
        )

    def plain(self, number: int) -> str:
        return spell(self.locale, number, "spellout-cardinal")

    def counted(self, number: int, feminine: bool = False) -> str:
        return "两" if number == 2 else self._large(number)

    def cardinal(self, number: int, where: Around) -> str:
        if number == 2 and not where.before.endswith("第") and _TWO_OF.match(where.after):
            return "两"
        return self._large(number)

    def year(self, number: int, where: Around) -> str:
        return self.digits(str(number)) if where.after.lstrip().startswith("年") else self._large(number)

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = f"{self.counted(hour)}点"
        return f"{spoken}{'零' if minute < 10 else ''}{self.plain(minute)}分" if minute else spoken

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        named = f"{self.plain(month)}月{self.plain(day)}日"
        return named if year is None else f"{self.digits(str(year))}年{named}"

    def fraction(self, above: int, below: int) -> str | None:
        return f"{self.plain(below)}分之{self.plain(above)}"

    whole_and = "又"

    def percents(self, number: Number, where: Around) -> str:
        return f"百分之{self.decimal(number) if number.fraction else self.plain(number.whole)}"

    def _large(self, number: int) -> str:
        return spell(self.locale, number, "spellout-cardinal-alternate2") if number >= 1000 else self.plain(number)

    def _year(self, found: re.Match[str], where: Around) -> str | None:
        return self.digits(found[1]) if 1100 <= int(found[1]) < 2100 else None


class Japanese(EastAsian):
    """Japanese, in kanji numerals: their readings (一つ, 二人, 四時) follow from what stands behind."""

    spaced = False
    rules = "spellout-cardinal"
    zero_digit = "ゼロ"
    decimal_word = point_word = "点"
    minus, plus, plus_minus, cold = "マイナス", "プラス", "プラスマイナス", "マイナス"
    about, less, more, at_most, at_least = "約", "未満", "超", "最大", "最低"
    number_word, section_word = "ナンバー", "第"
    times, divided, equals, by = "かける", "割る", "イコール", "かける"
    to, ratio, out_of = "から", "対", ""
    percent, per_mille = "パーセント", "パーミル"
    squared, cubed = "の二乗", "の三乗"
    raised = "の{}乗"
    pause = "、"
    second_word = "秒"

    def plain(self, number: int) -> str:
        return spell(self.locale, number, "spellout-cardinal") if number else "零"

    def clock(self, hour: int, minute: int, where: Around) -> str:
        return f"{self.plain(hour)}時{f'{self.plain(minute)}分' if minute else ''}"

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        named = f"{self.plain(month)}月{self.plain(day)}日"
        return named if year is None else f"{self.plain(year)}年{named}"

    def fraction(self, above: int, below: int) -> str | None:
        return f"{self.plain(below)}分の{self.plain(above)}"

    whole_and = "と"


class Korean(EastAsian):
    """Korean: native numbers before native counters (to 20; ages to 99; hours to 12), Sino-Korean elsewhere."""

    rules = "spellout-cardinal-sinokorean"
    decimal_word = point_word = "점"
    phone_zero = "공"
    no_blank_after, no_blank_before = "제", "만억조천백"
    has_particles = True
    minus, plus, plus_minus, cold = "마이너스", "플러스", "플러스마이너스", "영하"
    about, less, more, at_most, at_least = "약", "미만", "초과", "최대", "최소"
    number_word, section_word = "번호", "제"
    times, divided, equals, by = "곱하기", "나누기", "는", "곱하기"
    to, ratio, out_of = "에서", "대", ""
    percent, per_mille = "퍼센트", "퍼밀"
    squared, cubed = "의 제곱", "의 세제곱"
    raised = "의 {} 제곱"
    second_word = "초"

    @cached_property
    def first_forms(self) -> tuple[Form, ...]:
        return (
            (re.compile(r"(1[0-2]|0?[1-9])월(?!급)"), lambda found, _: self.month_name(int(found[1])) + GLUE),
            (re.compile(r"([0-9]{1,2})(?=[ ]?번째)"), self._turn),
        )

    def cardinal(self, number: int, where: Around) -> str:
        counter = _NATIVE.match(where.after)
        if not counter or where.before.endswith("제") or _NUMBERED.match(where.after):
            return self.plain(number)
        word = counter[0].strip()
        most = {"살": 99, "시": 12, "시간": 19}.get(word, 20)
        if not 1 <= number <= most or (word == "대" and number % 10 == 0):
            return self.plain(number)
        return self._native(number)

    def clock(self, hour: int, minute: int, where: Around) -> str:
        spoken = f"{self._native(hour) if 1 <= hour <= 12 else self.plain(hour)} 시"
        return f"{spoken} {self.plain(minute)} 분" if minute else spoken

    def date(self, year: int | None, month: int, day: int, where: Around) -> str:
        named = f"{self.month_name(month)} {self.plain(day)} 일"
        return named if year is None else f"{self.plain(year)} 년 {named}"

    def month_name(self, month: int) -> str:
        """The month; June and October lose a consonant."""
        return {6: "유", 10: "시"}.get(month, self.plain(month)) + "월"

    def fraction(self, above: int, below: int) -> str | None:
        return f"{self.plain(below)}분의 {self.plain(above)}"

    def range(self, first: str, last: str, where: Around) -> str:
        return f"{first}에서 {last}"

    whole_and = "와"

    def _native(self, number: int) -> str:
        return spell(self.locale, number, "spellout-cardinal-native-attributive")

    def _turn(self, found: re.Match[str], where: Around) -> str | None:
        number = int(found[1])
        return "첫" if number == 1 else self._native(number) if number else None
