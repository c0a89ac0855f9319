#!/usr/bin/env python3
"""Writes data/tokenizer/unicode/unicode_tables.c: what tokenizers ask of code points.

    make_unicode_tables.py UCD > data/tokenizer/unicode/unicode_tables.c

UCD is the Unicode character database 15.0.0 as a folder: Debian's package unicode-data 15.0.0-1
installs it as /usr/share/unicode. Also needs unicodedata2 16.0.0 from PyPI. Not part of the product.

Hugging Face's tokenizers (0.23.3) take their properties from libraries of different years. Each table
here is of the version that tokenizers use; all were compared with tokenizers for every code point.

    Mn, P, Cc, Cf, Co       Unicode 8.0, crate unicode_categories 0.1.1
    NFD, combining classes  Unicode 9.0, crate unicode-normalization-alignments
    L, N                    Unicode 16.0, Oniguruma
    \\w                      Unicode 16.0, crate regex
    White_Space             the same in all of them
    lower case              Unicode 17.0, Rust's standard library

The license of the Unicode data files allows this use; its notice is in the file that is written.
"""
import os
import re
import sys

import unicodedata2

if unicodedata2.unidata_version != "16.0.0" or len(sys.argv) != 2:
    sys.exit(__doc__)
UCD = sys.argv[1]
LAST = 0x10FFFF
LETTER, NUMBER, SPACE, WORD, MARK, PUNCTUATION, REMOVED, CHINESE = (1 << i for i in range(8))

# Their category was another one in Unicode 8.0.
CATEGORY_8 = {0x1734: "Mn", 0x1885: "Lo", 0x1886: "Lo", 0xA9BD: "Mc", 0x111C9: "Po", 0x166D: "Po"}
# Lower case since Unicode 16.0 and 17.0: first, last, step, delta.
LOWER_SINCE_16 = [
    (0x1C89, 0x1C89, 1, 1), (0xA7CB, 0xA7CB, 1, 0x264 - 0xA7CB), (0xA7CC, 0xA7CC, 1, 1),
    (0xA7CE, 0xA7CE, 1, 1), (0xA7D2, 0xA7D4, 2, 1), (0xA7DA, 0xA7DA, 1, 1),
    (0xA7DC, 0xA7DC, 1, 0x19B - 0xA7DC), (0x10D50, 0x10D65, 1, 0x20), (0x16EA0, 0x16EB8, 1, 0x1B),
]


def lines(name):
    with open(os.path.join(UCD, name), encoding="utf-8") as file:
        for line in file:
            line = line.split("#")[0].strip()
            if line:
                yield [field.strip() for field in line.split(";")]


def points(field):
    first, _, last = field.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


if "15.0.0" not in open(os.path.join(UCD, "DerivedAge.txt"), encoding="utf-8").read(100):
    sys.exit("the database is not version 15.0.0")
age = {c: tuple(map(int, row[1].split("."))) for row in lines("DerivedAge.txt") for c in points(row[0])}
white_space = {c for row in lines("PropList.txt") if row[1] == "White_Space" for c in points(row[0])}
alphabetic = {c for row in lines("PropList.txt") if row[1] == "Other_Alphabetic" for c in points(row[0])}

category, combining, decomposition, lower = {}, {}, {}, {}
first = 0
for row in lines("UnicodeData.txt"):
    code = int(row[0], 16)
    first = code if not row[1].endswith("Last>") else first
    for c in range(first, code + 1):
        category[c] = row[2]
    if int(row[3]) and age[code] <= (9, 0):
        combining[code] = int(row[3])
    if row[5] and row[5][0] != "<" and age[code] <= (9, 0):
        decomposition[code] = [int(part, 16) for part in row[5].split()]
    if row[13] and code != 0x130:  # which becomes two, in unicode.c
        lower[code] = int(row[13], 16) - code
for parts in decomposition.values():
    assert len(parts) == 1 or parts[1] not in decomposition
for a, b, step, delta in LOWER_SINCE_16:
    lower.update({c: delta for c in range(a, b + 1, step)})


def is_chinese(c):
    """The blocks of bert.rs. 2B920 stands there for 2B820; models were trained with it."""
    blocks = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
              (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
    return any(a <= c <= b for a, b in blocks)


def flags(c):
    now = unicodedata2.category(chr(c))
    then = CATEGORY_8.get(c, category.get(c, "Cn")) if age.get(c, (99, 0)) <= (8, 0) else "Cn"
    ascii_punctuation = c < 128 and chr(c) in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    word = now[0] in "LM" or now in ("Nd", "Nl", "Pc") or c in alphabetic or c in (0x200C, 0x200D)
    removed = (then in ("Cc", "Cf", "Co") and c not in (9, 10, 13)) or c == 0xFFFD
    return ((now[0] == "L") * LETTER | (now[0] == "N") * NUMBER | (c in white_space) * SPACE |
            word * WORD | (then == "Mn") * MARK | (then[0] == "P" or ascii_punctuation) * PUNCTUATION |
            removed * REMOVED | is_chinese(c) * CHINESE)


def ranges():
    before = None
    for c in range(LAST + 1):
        now = flags(c)
        if now != before:
            yield c << 8 | now
        before = now


def combining_ranges():
    runs = []
    for c, value in sorted(combining.items()):
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == value:
            runs[-1][1] = c
        else:
            runs.append([c, c, value])
    return runs


def lower_ranges():
    """Neighbours with the same delta, one or two apart."""
    runs = []
    for c, delta in sorted(lower.items()):
        if runs and runs[-1][3] == delta:
            step = c - runs[-1][1]
            if step == runs[-1][2] or (runs[-1][0] == runs[-1][1] and step <= 2):
                runs[-1][1:3] = [c, step]
                continue
        runs.append([c, c, 1, delta])
    return runs


def table(kind, name, items):
    items = list(items)
    print(f"\nconst {kind} {name}[] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = "   "
        line += f" {item},"
    print(line)
    print("};")
    plural = name.replace("fl__", "fl__n_")
    print(f"const int {plural} = {len(items)};")


print("""/* Made by tests/reference/make_unicode_tables.py, whose head names the versions; do not edit.
 *
 * Made from data files of the Unicode character database, under the Unicode License V3:
 * Copyright (C) 1991-2022 Unicode, Inc. All rights reserved. Permission is granted, free of charge,
 * to any person obtaining a copy of the data files to deal in them without restriction, provided
 * that this copyright and permission notice appear with all copies or in the documentation. The data
 * files are provided "as is", without warranty of any kind. https://www.unicode.org/license.txt */
#include "data/tokenizer/unicode/unicode_tables.h"

/* clang-format off */""")
table("uint32_t", "fl__char_ranges", (f"0x{x:x}" for x in ranges()))
table("fl__decomposition", "fl__decompositions",
      (f"{{0x{c:x}, 0x{d[0]:x}, {hex(d[1]) if len(d) > 1 else 0}}}" for c, d in sorted(decomposition.items())))
table("fl__combining", "fl__combinings", (f"{{0x{a:x}, 0x{b:x}, {v}}}" for a, b, v in combining_ranges()))
table("fl__lower_case", "fl__lower_cases", (f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}" for a, b, s, d in lower_ranges()))
print("\n/* clang-format on */")
