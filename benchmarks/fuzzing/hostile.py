"""Values, names and bytes that programs stumble over."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from typing import Any

TEXTS = (
    "", " ", "\x00", "\x1b]52;c;aGFja2Vk\x07", "\x1b[2J\x1b[1;1H", "\x1b[31mred", "\u202egnp.exe", "\u200b", "a\nb",
    "a\r\nb", "\t", "'", '"', "'; DROP TABLE log; --", '"; --', "\\", "%s%n", "{0}", "{{7*7}}",
    "<script>alert(1)</script>",
    "</script>", "=1+1", "+1", "-1", "@SUM(A1)", "=HYPERLINK(\"http://x\")", "NULL", "null", "None", "nan", "NaN",
    "inf",
    "true", "yes", "0", "1", "007", "1e5", "0x10", "𝔘", "ß", "İ", "é", "e\u0301", "🙂", "日本語", "\ufeffx", "x" * 300,
    "x" * 5000, "[bold red]x[/]", "[/]", "a,b", "a;b", "a|b", "query", "position", "click", "doc", "unit", "--help",
    "-o",
    "*", "[1]", "?", "~", "$HOME", "`id`", "../../etc/passwd", "/dev/null", "s3://bucket/x", "http://127.0.0.1:9/x.csv",
    "\x7f", "\x85", "\u2028", "a=b", ",", "=", "a=1,b=2", "1=.5,2=.5",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 10, 255, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 0.5, -0.0, 1.5, 1e-320, 1e-9, 1e9,
    1e15, 1e100, 1e300, -1e300, math.inf, -math.inf, math.nan,
)  # fmt: skip
OBJECTS: tuple[Any, ...] = (
    None, True, False, [], [1, 2], {"a": 1}, b"\xff\x00", datetime.date(2024, 2, 30 - 1), datetime.timedelta(1),
    datetime.datetime(1, 1, 1), decimal.Decimal("1.10"), [[1]], ["a", None],
)  # fmt: skip
OPTION_NUMBERS = (
    "0", "1", "-1", "2", "3", "10", "0.5", "-0.5", "1.5", "nan", "inf", "-inf", "1e308", "1e-308", "1e999", "1_000",
    "99999999999999999999", "-99999999999999999999", "2147483647", "2147483648", "0x10", "", " ", "1,5", "٣", "1e3",
    "9" * 5000, "true", "auto", "None",
)  # fmt: skip


def text(random: random.Random) -> str:
    if random.random() < 0.75:
        return random.choice(TEXTS)
    return "".join(chr(random.choice((random.randrange(32), random.randrange(32, 127), random.randrange(128, 0x3000))))
                   for _ in range(random.randrange(1, 12)))  # fmt: skip


def value(random: random.Random) -> Any:
    return random.choice((text(random), random.choice(NUMBERS), random.choice(OBJECTS)))


def argument(random: random.Random) -> str:
    """A word of a command line, which cannot hold a zero byte."""
    found = random.choice(OPTION_NUMBERS) if random.random() < 0.5 else text(random)
    return found.replace("\x00", "")


def json_value(random: random.Random, depth: int = 0) -> Any:
    """Anything JSON holds, numbers beyond all bounds among them."""
    kind = random.randrange(8 if depth < 3 else 6)
    if kind == 6:
        return [json_value(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == 7:
        return {text(random): json_value(random, depth + 1) for _ in range(random.randrange(4))}
    return (None, random.random() < 0.5, random.choice(NUMBERS), text(random), 10**400, -1)[kind]


def spoil(data: bytes, random: random.Random) -> bytes:
    """Damage a file: cut it, flip bytes, put another in its place."""
    kind = random.randrange(7)
    if kind == 0 or not data:
        return b""
    if kind == 1:
        return data[: random.randrange(len(data))]
    if kind == 2:
        changed = bytearray(data)
        for _ in range(random.randrange(1, 20)):
            changed[random.randrange(len(changed))] = random.randrange(256)
        return bytes(changed)
    if kind == 3:
        return random.randbytes(random.randrange(1, 2000))
    if kind == 4:
        return data + random.randbytes(50)
    if kind == 5:
        begin = random.randrange(len(data))
        return data[:begin] + data[begin + random.randrange(1, 40) :]
    return b"\xff\xfe" + data.decode("latin-1").encode("utf-16-le")
