"""The words of a curl command as the call that it makes, in the fields of a schedule, or why that is not possible.

Called for every command of a crontab. Pure. Options that change what is sent, and that a schedule cannot hold, refuse
the command; those that only say what curl prints are left out. What Chronos does otherwise is told in a note.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

from scheduling.domain.errors import shown
from scheduling.files import curl_options as options
from scheduling.files.shell import NotPlain

FORM = "application/x-www-form-urlencoded"
_OTHER_SCHEMES = re.compile(r"(?:ftp|dict|ldap|imap|smtp|pop3)\.", re.IGNORECASE)


@dataclass(slots=True)
class Call:
    """What curl was told, option by option."""

    urls: list[str] = field(default_factory=list)
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    is_json: bool = False
    as_query: bool = False
    head: bool = False
    globs: bool = True
    timeout_s: float | None = None
    retries: int = 0
    retry: dict[str, Any] = field(default_factory=dict)
    stdin: str | None = None
    notes: list[str] = field(default_factory=list)


def read_curl(words: list[str], *, stdin: str | None = None) -> tuple[dict[str, Any], list[str]]:
    """`target`, `payload` and `delivery` of the schedule, and notes. Raises NotPlain with the reason."""
    _check_program(words)
    call = Call(stdin=stdin)
    waiting = words[:0:-1]
    only_urls = False
    while waiting:
        word = waiting.pop()
        if word == "--" and not only_urls:
            only_urls = True
        elif only_urls or not word.startswith("-") or word == "-":
            call.urls.append(word)
        elif word.startswith("--"):
            _take(call, word, word, waiting)
        else:
            _take_cluster(call, word, waiting)
    return _fields(call), call.notes


def _check_program(words: list[str]) -> None:
    program = words[0].rsplit("/", 1)[-1]
    if program == "curl":
        return
    if len(words) > 1 and words[1].rsplit("/", 1)[-1] == "curl":
        raise NotPlain(
            f"It begins with {shown(words[0])}: only plain calls of curl are read. If that is the user's column of a "
            "system crontab, take the column out."
        )
    raise NotPlain(f"It runs {shown(program)}: only calls of curl are read. A `# chronos:` comment can name a target.")


def _take_cluster(call: Call, word: str, waiting: list[str]) -> None:
    """`-fsS`, `-XPOST`, `-sm 10`: letters until one that takes a value, which is the rest of the word or the next."""
    for place, letter in enumerate(word[1:], start=1):
        name = options.SHORT.get(letter, f"-{letter}")
        rest = word[place + 1 :]
        if name in options.WITH_VALUE and rest:
            _take(call, f"-{letter}", name, [rest])
            return
        _take(call, f"-{letter}", name, waiting)
        if name in options.WITH_VALUE:
            return


def _take(call: Call, written: str, name: str, waiting: list[str]) -> None:
    if name in options.REFUSED:
        raise NotPlain(f"{written}: {options.REFUSED[name]}")
    if name in options.TOLD:
        call.notes.append(f"{written}: {options.TOLD[name]}")
    if name in options.FLAGS:
        _FLAGS.get(name, _nothing)(call)
    elif name in options.WITH_VALUE:
        if not waiting:
            raise NotPlain(f"{written}: its value is missing.")
        value = waiting.pop()
        try:
            _VALUES.get(name, _left_out)(call, value)
        except NotPlain as error:
            raise NotPlain(f"{written}: {error}") from None
    else:
        raise NotPlain(f"{shown(written)}: this option cannot be carried over.")


# --- options -------------------------------------------------------------------------------------------------


def _nothing(_call: Call) -> None:
    """It says what curl prints."""


def _left_out(_call: Call, _value: str) -> None:
    """The same, with a value."""


def _head(call: Call) -> None:
    call.head = True


def _as_query(call: Call) -> None:
    call.as_query = True


def _no_globs(call: Call) -> None:
    call.globs = False


def _method(call: Call, value: str) -> None:
    call.method = value


def _url(call: Call, value: str) -> None:
    call.urls.append(value)


def _header(call: Call, value: str) -> None:
    name, colon, text = value.partition(":")
    if value.startswith("@"):
        raise NotPlain("headers come from a file; write them out.")
    if not colon:
        name, semicolon, rest = value.partition(";")
        if not semicolon or rest.strip():
            raise NotPlain(f"{shown(value)} is no header; write Name: value.")
    elif not text.strip():
        raise NotPlain(f"it takes the header {shown(name)} away; that is not carried over.")
    _set_header(call, name.strip(), text.strip())


def _set_header(call: Call, name: str, value: str) -> None:
    if any(name.lower() == known.lower() for known in call.headers):
        raise NotPlain(f"the header {shown(name)} is given twice.")
    call.headers[name] = value


def _user_agent(call: Call, value: str) -> None:
    if value:
        _set_header(call, "User-Agent", value)


def _referer(call: Call, value: str) -> None:
    _set_header(call, "Referer", value)


def _data(call: Call, value: str) -> None:
    _add_data(call, _from_stdin(call, value, lines=False) if value.startswith("@") else value)


def _data_binary(call: Call, value: str) -> None:
    _add_data(call, _from_stdin(call, value, lines=True) if value.startswith("@") else value)


def _data_raw(call: Call, value: str) -> None:
    _add_data(call, value)


def _data_urlencode(call: Call, value: str) -> None:
    found = re.match(r"[^=@]*[=@]", value)
    name, mark = (found[0][:-1], found[0][-1]) if found else ("", "")
    if mark == "@":
        raise NotPlain("its data come from a file; write them out.")
    content = quote_plus(value[len(name) + len(mark) :], safe="", errors="surrogatepass")
    _add_data(call, f"{name}={content}" if name else content)


def _json(call: Call, value: str) -> None:
    text = _from_stdin(call, value, lines=True) if value.startswith("@") else value
    if call.data and not call.is_json:
        raise NotPlain("--json beside other data is not carried over.")
    call.is_json = True
    call.data = ["".join([*call.data, text])]


def _add_data(call: Call, text: str) -> None:
    if call.is_json:
        raise NotPlain("--json beside other data is not carried over.")
    call.data.append(text)


def _from_stdin(call: Call, value: str, *, lines: bool) -> str:
    if value != "@-" or call.stdin is None:
        raise NotPlain("its data come from a file; write them out.")
    return call.stdin if lines else re.sub(r"[\r\n\0]", "", call.stdin)


def _only_dev_null(_call: Call, value: str) -> None:
    if value not in ("/dev/null", "-"):
        raise NotPlain(f"it writes the file {shown(value)}: Chronos keeps attempts, and writes no files.")


def _max_time(call: Call, value: str) -> None:
    call.timeout_s = _number(value) or None


def _retry(call: Call, value: str) -> None:
    if not re.fullmatch("[0-9]{1,4}", value):
        raise NotPlain(f"{shown(value)} is no number of retries.")
    call.retries = int(value)


def _retry_delay(call: Call, value: str) -> None:
    if _number(value):
        call.retry |= {"initial_backoff_s": _number(value), "multiplier": 1.0, "jitter": "none"}
        call.retry["max_backoff_s"] = max(_number(value), 300.0)


def _retry_max_time(call: Call, value: str) -> None:
    if _number(value):
        call.retry["max_elapsed_s"] = _number(value)


def _number(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", value):
        raise NotPlain(f"{shown(value)} is no number of seconds.")
    return float(value)


_FLAGS: dict[str, Callable[[Call], None]] = {"--head": _head, "--get": _as_query, "--globoff": _no_globs}
_VALUES: dict[str, Callable[[Call, str], None]] = {
    "--request": _method,
    "--url": _url,
    "--header": _header,
    "--user-agent": _user_agent,
    "--referer": _referer,
    "--data": _data,
    "--data-ascii": _data,
    "--data-binary": _data_binary,
    "--data-raw": _data_raw,
    "--data-urlencode": _data_urlencode,
    "--json": _json,
    "--output": _only_dev_null,
    "--dump-header": _only_dev_null,
    "--stderr": _only_dev_null,
    "--max-time": _max_time,
    "--retry": _retry,
    "--retry-delay": _retry_delay,
    "--retry-max-time": _retry_max_time,
}


# --- the call ------------------------------------------------------------------------------------------------


def _fields(call: Call) -> dict[str, Any]:
    if len(call.urls) != 1:
        raise NotPlain("There is no URL." if not call.urls else "It calls more than one URL: write a line for each.")
    if call.head and call.data and not call.as_query:
        raise NotPlain("-I with data is refused by curl itself.")
    body = "" if call.as_query else "&".join(call.data)
    method = call.method or _usual_method(call)
    delivery: dict[str, Any] = {"retry": {"max_attempts": call.retries + 1}}
    if call.retries:
        delivery["retry"] |= call.retry
    if call.timeout_s is not None:
        delivery["timeout_s"] = call.timeout_s
    fields: dict[str, Any] = {"delivery": delivery}
    if body:
        fields["payload"] = _payload(call, body, method)
    fields["target"] = {"url": _address(call), "method": method, "headers": call.headers}
    return fields


def _usual_method(call: Call) -> str:
    if call.head:
        return "HEAD"
    return "POST" if (call.data or call.is_json) and not call.as_query else "GET"


def _payload(call: Call, body: str, method: str) -> Any:
    """The body as JSON. Content-Type is what curl sends: where nobody names one, that is no JSON's."""
    if method in ("GET", "HEAD"):
        raise NotPlain(f"It sends a body with {method}: Chronos sends none.")
    try:
        payload = json.loads(body, object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise NotPlain("Its body is no JSON: Chronos sends JSON bodies only.") from None
    if payload is None:
        raise NotPlain("Its body is null: Chronos sends no body for that.")
    named = {name.lower() for name in call.headers}
    if call.is_json:
        usual = {"Content-Type": "application/json", "Accept": "application/json"}
    else:
        usual = {"Content-Type": FORM}
    call.headers |= {name: value for name, value in usual.items() if name.lower() not in named}
    if not call.is_json and "content-type" not in named:
        call.notes.append(f"The body is JSON, and curl sends it as {FORM}: kept so.")
    return payload


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _address(call: Call) -> str:
    url = call.urls[0]
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", url):
        if _OTHER_SCHEMES.match(url):
            raise NotPlain(f"curl takes the URL {shown(url)} for another protocol than HTTP; write it with its scheme.")
        url = f"http://{url}"
        call.notes.append("The URL has no scheme: http:// is what curl takes.")
    _, _, rest = url.partition("://")
    authority = re.match(r"[^/?#]*", rest)
    host = authority[0] if authority else ""
    if "@" in host:
        raise NotPlain(options.SECRET_IN_URL)
    if call.globs and re.search(r"[{}\[\]]", rest[len(host) :] if re.match(r"\[[0-9a-fA-F:.]+\]", host) else rest):
        raise NotPlain("curl makes several URLs of {…} and […]: write a line for each, or add -g.")
    if not call.as_query or not call.data:
        return url
    base, _, _fragment = url.partition("#")
    return f"{base}{'&' if '?' in base else '?'}{'&'.join(call.data)}"
