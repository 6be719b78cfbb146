"""One command of `sh`, taken apart into its words as the shell would do it, or the reason why that is not possible.

Called for every command of a crontab. Pure. `shlex` does not do here: it cannot tell a quoted `$` from a bare one, and
treats a backslash in double quotes otherwise than sh does. What only the running shell would know (variables, file
names, the output of other commands) is never guessed.
"""

import re
from dataclasses import dataclass, field

from scheduling.domain.errors import shown

_OPERATOR = re.compile(r"&>>|&>|<<-|<<|<>|<&|>>|>&|>\||\|\||&&|;;|\|&|[|&;()<>\n]")
_REDIRECTIONS = frozenset({"&>>", "&>", "<<-", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">"})
_EXPANDS = re.compile(r"\$(?:\{[^}]*\}?|\([^)]*\)?|[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PLAIN = re.compile(r"[^\s\"'\\$`|&;()<>*?\[\]{}~#]+")


class NotPlain(ValueError):  # noqa: N818 - named for what it says of the command
    """It is more than one program with fixed words; the text says why."""


@dataclass(slots=True)
class _Word:
    text: str = ""
    begun: bool = False
    quoted: bool = False
    patterns: set[str] = field(default_factory=set)
    """Bare characters that may become names of files."""


@dataclass(slots=True)
class _Operator:
    text: str
    digit: str


def words_of(command: str) -> list[str]:
    """The program and its arguments, redirections to and from /dev/null left out. Raises NotPlain."""
    tokens = _tokens(command)
    words: list[str] = []
    while tokens:
        token = tokens.pop(0)
        if isinstance(token, _Operator):
            _check_operator(token, tokens.pop(0) if tokens else None)
        else:
            words.append(_checked(token))
    if not words:
        raise NotPlain("There is no command.")
    if _ASSIGNMENT.fullmatch(words[0]):
        raise NotPlain("It sets a variable for its command; that is not carried over.")
    return words


def _tokens(command: str) -> list[_Word | _Operator]:
    tokens: list[_Word | _Operator] = []
    word, place = _Word(), 0
    while place < len(command):
        char = command[place]
        operator = _OPERATOR.match(command, place)
        if operator is not None:
            digit = word.text if word.text.isdigit() and not word.quoted and operator[0] in _REDIRECTIONS else ""
            if len(digit) > 1:
                raise NotPlain("Several digits stand before a redirection: shells differ on what that means.")
            word = _ended(tokens, _Word() if digit else word)
            tokens.append(_Operator(operator[0], digit))
            place = operator.end()
        elif char in " \t":
            word, place = _ended(tokens, word), place + 1
        elif char == "#" and not word.begun:
            break
        else:
            word.begun = True
            place = _read_piece(command, place, word)
    _ended(tokens, word)
    return tokens


def _ended(tokens: list[_Word | _Operator], word: _Word) -> _Word:
    if word.begun:
        tokens.append(word)
    return _Word()


def _read_piece(command: str, place: int, word: _Word) -> int:
    """One piece of a word, and where it ends."""
    char = command[place]
    if char == "'":
        end = command.find("'", place + 1)
        if end < 0:
            raise NotPlain("A single quote is not closed.")
        word.text, word.quoted = word.text + command[place + 1 : end], True
        return end + 1
    if char == '"':
        return _read_double_quoted(command, place + 1, word)
    if char == "\\":
        word.text, word.quoted = word.text + (command[place + 1 : place + 2] or "\\"), True
        return place + 2
    _refuse_expansion(command, place, bare=True)
    if char in "*?[]{}" or (char == "~" and not word.text):
        word.patterns.add(char)
    plain = _PLAIN.match(command, place)
    piece = plain[0] if plain else char
    word.text += piece
    return place + len(piece)


def _read_double_quoted(command: str, place: int, word: _Word) -> int:
    word.quoted = True
    while place < len(command):
        char = command[place]
        if char == '"':
            return place + 1
        if char == "\\" and command[place + 1 : place + 2] in ("$", "`", '"', "\\"):
            place += 1
            char = command[place]
        else:
            _refuse_expansion(command, place, bare=False)
        word.text += char
        place += 1
    raise NotPlain("A double quote is not closed.")


def _refuse_expansion(command: str, place: int, *, bare: bool) -> None:
    char = command[place]
    if char == "`":
        raise NotPlain("It puts the output of another command in (backquotes); that is not carried over.")
    expansion = _EXPANDS.match(command, place)
    if expansion is not None:
        what = "the output of another command" if expansion[0].startswith("$(") else "a variable"
        raise NotPlain(f"It puts {what} in ({shown(expansion[0])}); write the value itself.")
    if bare and command.startswith(("$'", '$"'), place):
        raise NotPlain("A quote after a bare $ is read differently by different shells.")


def _checked(word: _Word) -> str:
    if not word.patterns:
        return word.text
    address = re.match(r"https?://", word.text, re.IGNORECASE | re.ASCII)
    if address and word.patterns <= {"*", "?", "[", "]"}:
        return word.text  # a file name that begins with "https:" is nobody's: the shell leaves the word as it is
    raise NotPlain(f"The shell may change the word {shown(word.text)}: put it into single quotes.")


def _check_operator(operator: _Operator, operand: _Word | _Operator | None) -> None:
    if operator.text not in _REDIRECTIONS:
        raise NotPlain(_why_not_alone(operator.text))
    if not isinstance(operand, _Word):
        raise NotPlain(f"Nothing follows {operator.text}.")
    to = _checked(operand)
    if to == "/dev/null" and not operator.text.startswith("<<"):
        return
    if operator.text in (">&", "<&") and re.fullmatch(r"[0-9]|-", to):
        return
    if operator.text.startswith("<"):
        raise NotPlain("Its standard input comes from a file; that is not carried over.")
    raise NotPlain(f"Its output goes into the file {shown(to)}: Chronos keeps attempts, and writes no files.")


def _why_not_alone(operator: str) -> str:
    if operator in ("|", "|&"):
        return "Its output goes through a pipe into another program; that is not carried over."
    if operator == "&":
        return "A bare & ends the command: if it belongs to the URL, put the URL into single quotes."
    return f"It is more than one command ({shown(operator)}); that is not carried over."
