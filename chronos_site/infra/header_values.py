"""What a header's value may hold, the same for one that is typed and one that is made of a row. Pure."""

import re

LONGEST = 4096
RULE = f"A value is a string of printable ASCII up to {LONGEST}, without spaces at its ends."
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|")


def is_value(text: str) -> bool:
    return len(text) <= LONGEST and _VALUE.fullmatch(text) is not None
