"""The text of a key can be judged without a database."""

import re

from hypothesis import given
from hypothesis import strategies as st

from chronos_site.tenancy import keys


def test_keys_are_long_random_and_different() -> None:
    made = {keys.generate_key() for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch(r"chr_[0-9A-Za-z]{38}", key) and keys.looks_valid(key) for key in made)


@given(st.integers(0, 41), st.characters())
def test_any_changed_character_is_seen(place: int, character: str) -> None:
    key = keys.generate_key()
    changed = key[:place] + character + key[place + 1 :]
    assert keys.looks_valid(changed) == (changed == key)


def test_cut_and_lengthened_keys_are_refused() -> None:
    key = keys.generate_key()
    assert not any(keys.looks_valid(other) for other in ("", "chr_", key[:-1], f"{key}0", f"{key}\n", f" {key}"))


def test_the_hash_is_sha256_in_hex_and_the_shown_part_tells_little() -> None:
    key = keys.generate_key()
    assert re.fullmatch(r"[0-9a-f]{64}", keys.hash_key(key))
    assert keys.shown_prefix(key) == key[:12]
