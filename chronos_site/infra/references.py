"""How a secret is named: `secret://<namespace>/<name>/<key>`. Pure; whoever may use which is decided elsewhere.

Namespace, name and key follow Kubernetes, so that a reference means the same under every provider. None of them can
hold a slash or climb out of a folder.
"""

import re
from dataclasses import dataclass

PREFIX = "secret://"
EXAMPLE = "secret://namespace/name/key"
LONGEST = 700
NAMESPACE = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = rf"(?=[a-z0-9.-]{{1,253}}(?:/|$)){NAMESPACE}(?:\.{NAMESPACE})*"
_KEY = r"(?!\.\.|\.$)[A-Za-z0-9._-]{1,253}"
_REFERENCE = re.compile(rf"{PREFIX}({NAMESPACE})/({_NAME})/({_KEY})")
_WITHIN = re.compile(r"(?:[A-Za-z][A-Za-z0-9-]{0,30} )?")


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    namespace: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.namespace}/{self.name}/{self.key}"


def names_secret(text: str) -> bool:
    """Whether the text means to name a secret, well or badly."""
    return PREFIX in text.lower()


def parse_reference(text: str) -> Reference:
    """Raises ValueError with a sentence that does not repeat the text."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"A secret is named {EXAMPLE}: namespace and name in lower case letters, digits and hyphens, the key also"
            " with capitals, dots and underscores."
        )
    return Reference(*found.groups())


def split_value(value: str) -> tuple[str, Reference] | None:
    """A header's value as what stands before its reference, and the reference; None where it names no secret.

    A reference is the whole value, or follows one scheme word, as in `Bearer secret://…`. Raises ValueError for any
    other value that names a secret.
    """
    if not names_secret(value):
        return None
    before, mark, rest = value.partition(PREFIX)
    if not mark or not _WITHIN.fullmatch(before):
        raise ValueError(f"A reference is the whole value, or follows one word: {EXAMPLE}, or Bearer {EXAMPLE}.")
    return before, parse_reference(PREFIX + rest)
