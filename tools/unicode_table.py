#!/usr/bin/env python3
"""Writes src/bmojo/data/unicode_table.cpp: what byte-level tokenizers ask of each code point.

    pip install 'unicodedata2==16.*' tokenizers    # once; the product needs neither
    tools/unicode_table.py

Letters (L), numbers (N) and white space are those of Unicode 16.0, by which Python's `tokenizers`
splits. Its NFC is of an older Unicode: characters that came later are not composed and not
reordered. The script asks it which ones these are."""

import sys
from pathlib import Path

import unicodedata2
from tokenizers.normalizers import NFC

OUT = Path(__file__).resolve().parents[1] / "src/bmojo/data/unicode_table.cpp"
# The property White_Space.
SPACES = {*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
          0x202F, 0x205F, 0x3000}  # fmt: skip
LETTER, NUMBER, SPACE, UNSTABLE, NEWER = 1, 2, 3, 4, 8
SURROGATES = range(0xD800, 0xE000)
HANGUL_SECOND = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]


def general_class(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata2.category(chr(code))[0], 0)


def canonical_pairs():
    """(first, second, whole) of every character that decomposes into two."""
    for code in range(0x110000):
        words = unicodedata2.decomposition(chr(code)).split()
        if len(words) == 2 and not words[0].startswith("<"):
            yield chr(int(words[0], 16)), chr(int(words[1], 16)), chr(code)


def normalization():
    """Code point to UNSTABLE or NEWER; not those that NFC leaves alone whatever stands before."""
    nfc, flags = NFC(), {}
    for code in range(0x110000):
        if code in SURROGATES:
            continue
        char = chr(code)
        if unicodedata2.combining(char):
            # Between two marks that must change places with it, whatever its own class is.
            text = f"a\u0345{char}\u0334"
            known = nfc.normalize_str(text) == unicodedata2.normalize("NFC", text)
            flags[code] = UNSTABLE if known else NEWER
        elif unicodedata2.normalize("NFC", char) != char:
            known = nfc.normalize_str(char) == unicodedata2.normalize("NFC", char)
            flags[code] = UNSTABLE if known else NEWER
    for first, second, whole in canonical_pairs():
        if unicodedata2.normalize("NFC", first + second) != whole:
            continue
        if nfc.normalize_str(first + second) == whole:
            assert flags.setdefault(ord(second), UNSTABLE) == UNSTABLE
        else:
            for part in (first, whole):
                assert flags.setdefault(ord(part), NEWER) == NEWER
            flags.setdefault(ord(second), NEWER)  # or a mark that is older
    return flags | dict.fromkeys(HANGUL_SECOND, UNSTABLE)


def runs(values):
    start = 0
    for code in range(1, len(values) + 1):
        if code == len(values) or values[code] != values[start]:
            yield start, values[start]
            start = code


def main():
    if not unicodedata2.unidata_version.startswith("16.0"):
        sys.exit(f"unicodedata2: must be of Unicode 16.0, got {unicodedata2.unidata_version}")
    flags = normalization()
    values = [general_class(code) | flags.get(code, 0) for code in range(0x110000)]
    cells = [f"{{{start:#x}, {value}}}," for start, value in runs(values)]
    lines, line = [], "   "
    for cell in cells:
        if len(line) + 1 + len(cell) > 100:
            lines.append(line)
            line = "   "
        line += " " + cell
    lines.append(line)
    OUT.write_text("""// Written by tools/unicode_table.py from Unicode 16.0; not to be changed by hand.
#include "bmojo/data/unicode.h"

namespace bmojo::data {

// clang-format off
const std::vector<CharacterRun>& character_runs() {
  static const std::vector<CharacterRun> runs = {
%s
  };
  return runs;
}
// clang-format on

}  // namespace bmojo::data
""" % "\n".join(lines))
    print(f"{OUT.name}: {len(cells)} runs")


if __name__ == "__main__":
    main()
