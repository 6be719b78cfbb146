"""Templates of bulk jobs, rendered: what a row may put where, and what stays as it is."""

import copy
import itertools
import json
import re
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bulk.domain.template import LARGEST_PAYLOAD, RowRefused, TemplateError, compile_template
from chronos_site.infra.header_values import is_value
from tests.bulk.templates import SECRET, URL, compiled, http, kafka, refused, url_of

# --- the URL ----------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=100))
def test_a_value_stays_within_its_place_of_the_url(value: str) -> None:
    template = compiled(http("https://h.example/p-{{v}}-s/x?q={{v}}&r=1#f{{v}}"))
    try:
        url = template.render({"v": value})[0]["url"]
    except RowRefused as error:
        assume(error.code not in ("url_too_long", "dot_segment"))
        raise
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc) == ("https", "h.example")
    assert url.isascii()
    before, segment, after = parts.path.split("/")
    assert (before, unquote(segment), after) == ("", f"p-{value}-s", "x")
    assert [unquote(pair) for pair in parts.query.split("&")] == [f"q={value}", "r=1"]
    assert unquote(parts.fragment) == "f" + value


@pytest.mark.parametrize("value", ["ABCxyz019", "a-_.~b", "a/b", "ä€😀", " ", "", "100%", "a+b&c=d", "²٣"])
def test_values_are_encoded_in_the_url_as_quote_does(value: str) -> None:
    assert url_of(
        "https://h.example/x{{v}}x/?{{v}}", v=value
    ) == f"https://h.example/x{quote(value, safe='')}x/?" + quote(value, safe="")


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/a/{{x}}/b", {"x": "."}),
        ("/a/{{x}}/b", {"x": ".."}),
        ("/a/{{x}}", {"x": ".."}),
        ("/{{x}}?q", {"x": ".."}),
        ("/{{x}}#f", {"x": ".."}),
        ("/a/{{x}}{{y}}", {"x": ".", "y": "."}),
        ("/a/.{{x}}", {"x": ""}),
        ("/a/.{{x}}/b", {"x": "."}),
        ("/a/%2e{{x}}", {"x": "."}),
        ("/a/%2E{{x}}", {"x": ""}),
        ("/a/{{x}}%2e", {"x": "."}),
        ("/a/%2{{x}}", {"x": "e"}),
        ("/a/%{{x}}", {"x": "2e"}),
        ("/a/%2{{x}}%2{{x}}", {"x": "E"}),
        ("/a/{{x}};v=1/", {"x": ".."}),
        ("/a/{{x}}/", {"x": "..;v=1"}),
        ("/a/{{x}}", {"x": "../admin"}),
        ("/a/{{x}}", {"x": "x/../../admin"}),
        ("/a/{{x}}", {"x": "x\\..\\admin"}),
        ("/a/{{x}}", {"x": "b/."}),
        ("/a/{{x}}%2f..", {"x": "b"}),
        ("/ok/{{x}}/{{y}}", {"x": "fine", "y": ".."}),
    ],
)
def test_no_value_climbs_out_of_its_path(path: str, values: dict[str, str]) -> None:
    error = refused(compiled(http("https://h.example" + path)), **values)
    assert error.code == "dot_segment"
    assert "/target/url" in str(error)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/a/{{x}}", "..."),
        ("/a/{{x}}", ".hidden"),
        ("/a/{{x}}", "a..b"),
        ("/a/v{{x}}", ".."),
        ("/a/{{x}}", "%2e%2e"),
        ("/a/{{x}}", "3.14"),
        ("/a/{{x}}", ""),
        ("/a?{{x}}", ".."),
        ("/a?b/{{x}}", "../.."),
        ("/a#/{{x}}", ".."),
        ("/a/../b/./{{x}}", "1"),
        ("/a{{x}}/%2e", "1"),
    ],
)
def test_dots_that_lead_nowhere_are_data(path: str, value: str) -> None:
    assert url_of("https://h.example" + path, x=value) == "https://h.example" + path.replace(
        "{{x}}", quote(value, safe="")
    )


@given(st.lists(st.sampled_from([".", "%2e", "%2E", "/", "%2f", "a", ";", "\\", ""]), max_size=5).map("".join))
def test_no_rendered_segment_is_dots_however_it_is_put_together(value: str) -> None:
    for before, after in itertools.product(["", ".", "%2e", "%2", "b"], ["", ".", "%2E", ";c"]):
        try:
            url = url_of(f"https://h.example/a/{before}{{{{x}}}}{after}/c", x=value)
        except RowRefused:
            continue
        segments = unquote(urlsplit(url).path).replace("\\", "/").split("/")
        assert not {".", ".."} & {segment.partition(";")[0] for segment in segments[2:-1]}


def test_a_url_has_at_most_2048_characters() -> None:
    start = "https://h.example/"
    assert len(url_of(start + "{{x}}", x="a" * (2048 - len(start)))) == 2048
    for value in ("a" * (2049 - len(start)), "ä" * 400, "a" * 1_000_000):
        error = refused(compiled(http(start + "{{x}}")), x=value)
        assert error.code == "url_too_long"
        assert "2048" in str(error)


# --- headers and key --------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.sampled_from(["{{v}}", "a{{v}}", "Bearer {{v}}", "{{v}} b", "a\t{{v}}"]))
def test_headers_hold_what_any_header_may_hold(value: str, form: str) -> None:
    template = compiled(http(headers={"X-Own": form, "x-other": "1"}))
    expected = form.replace("{{v}}", value)
    if is_value(expected) and "\0" not in value:
        assert template.render({"v": value})[0]["headers"] == {"X-Own": expected, "x-other": "1"}
    else:
        assert refused(template, v=value).code in ("invalid_header_value", "invalid_text")


@pytest.mark.parametrize("value", ["ä", "a\r\nX: y", "a\nb", " a", "a ", "\ta", "a\x7f", "a" * 4097, "a" * 1_000_000])
def test_a_header_that_cannot_be_sent_is_refused(value: str) -> None:
    for target in (http, kafka):
        error = refused(compiled(target(headers={"X-Own": "{{v}}"})), v=value)
        assert error.code == "invalid_header_value"
        assert "/target/headers/X-Own" in str(error)


def test_a_header_may_be_as_long_as_any() -> None:
    assert compiled(http(headers={"X": "ab{{v}}"})).render({"v": "a" * 4094})[0]["headers"]["X"] == "ab" + "a" * 4094
    assert refused(compiled(http(headers={"X": "ab{{v}}"})), v="a" * 4095).code == "invalid_header_value"
    assert refused(compiled(http(headers={"X": "{{v}}" * 800})), v="a" * 4000).code == "invalid_header_value"


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("{{a}}", {"a": SECRET}),
        ("Bearer {{a}}", {"a": SECRET}),
        ("{{a}}", {"a": "Bearer " + SECRET}),
        ("{{a}}", {"a": "x sEcReT://y"}),
        ("{{a}}//acme/api/token", {"a": "secret:"}),
        ("secret{{a}}//acme/api/token", {"a": ":"}),
        ("sec{{a}}ret://acme/api/token", {"a": ""}),
        ("{{a}}{{b}}", {"a": "sec", "b": "ret://acme/api/token"}),
    ],
)
def test_no_row_makes_the_sender_look_up_a_secret(form: str, values: dict[str, str]) -> None:
    for target, pointer in (
        (http(headers={"Authorization": form}), "/target/headers/Authorization"),
        (kafka(headers={"x": form}), "/target/headers/x"),
        (kafka(key=form), "/target/key"),
    ):
        error = refused(compiled(target), **values)
        assert error.code == "secret_reference"
        assert pointer in str(error)


def test_a_secret_named_in_the_payload_or_the_url_is_data() -> None:
    target, payload = compiled(http(URL), ["{{id}}"]).render({"id": SECRET})
    assert payload == [SECRET]
    assert SECRET not in target["url"]


def test_a_kafka_key_has_any_text_up_to_its_limit() -> None:
    template = compiled(kafka(key="k{{v}}"))
    for value in ("", "ä€😀 \n", "x" * 1023):
        assert template.render({"v": value})[0]["key"] == "k" + value
    for value in ("x" * 1024, "x" * 1_000_000):
        assert refused(template, v=value).code == "key_too_long"


# --- the payload ------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab{}% ", max_size=4)
documents = st.recursive(
    scalars | st.just("{{x}}") | st.just("a{{ x }}b{{y}}%"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc/~", max_size=3), inner, max_size=4),
    max_leaves=20,
)


def slowly(node: Any, values: dict[str, str]) -> Any:
    """The obvious way."""
    if isinstance(node, dict):
        return {key: slowly(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [slowly(value, values) for value in node]
    if isinstance(node, str):
        return re.sub(r"\{\{ *([^{}]*?) *\}\}", lambda found: values[found[1]], node)
    return node


@given(documents, st.text(max_size=5), st.text(max_size=5))
def test_payloads_render_as_the_obvious_way_does(payload: Any, x: str, y: str) -> None:
    values = {"x": x, "y": y}
    before = copy.deepcopy(payload)
    try:
        template = compile_template(target=http(method="GET"), payload=payload)
    except TemplateError as error:
        assume(error.code not in ("unclosed_placeholder", "empty_placeholder"))
        raise
    assume(template.columns <= {"x", "y"})
    used = [values[column] for column in template.columns]
    if any("\0" in value for value in used):
        assert refused(template, **values).code == "invalid_text"
        return
    _, rendered = template.render(values)
    expected = slowly(before, values)
    assert rendered == expected
    assert json.dumps(rendered) == json.dumps(expected)  # The order of members too, and 1 is not true.
    assert payload == before
    if not template.columns:
        assert rendered is payload


def test_what_holds_no_placeholder_is_handed_out_and_not_copied() -> None:
    target = http(URL, headers={"X": "1"}, auth={"type": "bearer", "token": SECRET})
    payload: dict[str, Any] = {
        "still": {"a": [1, 2]},
        "list": [{"b": 1}, {"c": "{{id}}"}, 1.5, None, True],
        "text": "{ no }",
    }
    kept = copy.deepcopy((target, payload))
    first, second = compiled(target, payload).render({"id": "1"}), compiled(target, payload).render({"id": "2"})
    assert (target, payload) == kept
    assert (first[1]["list"][1], second[1]["list"][1]) == ({"c": "1"}, {"c": "2"})
    assert first[0]["headers"] is target["headers"]
    assert first[0]["auth"] is target["auth"]
    assert first[1]["still"] is payload["still"]
    assert first[1]["list"][0] is payload["list"][0]
    fixed = http()
    rendered = compiled(fixed, payload["still"]).render({"id": "1"})
    assert rendered[0] is fixed
    assert rendered[1] is payload["still"]


def test_one_render_does_not_change_another() -> None:
    template = compiled(http(URL, headers={"X": "{{id}}"}), {"a": ["{{id}}"]})
    first = template.render({"id": "1"})
    kept = copy.deepcopy(first)
    template.render({"id": "2"})
    assert first == kept


def test_names_of_headers_keep_their_case_and_order() -> None:
    target = http(headers={"x-B": "{{v}}", "X-a": "1", "CONTENT-type": "text/{{v}}"})
    assert list(compiled(target).render({"v": "1"})[0]["headers"].items()) == [
        ("x-B", "1"),
        ("X-a", "1"),
        ("CONTENT-type", "text/1"),
    ]


@pytest.mark.parametrize("depth", [64, 5_000])
def test_a_deep_payload_needs_no_deep_stack(depth: int) -> None:
    payload: Any = "{{v}}"
    for level in range(depth):
        payload = [payload] if level % 2 else {"a": payload}
    _, rendered = compiled(payload=payload).render({"v": "1"})
    for level in reversed(range(depth)):
        rendered = rendered[0] if level % 2 else rendered["a"]
    assert rendered == "1"


def test_large_values_are_taken_once_but_not_many_times_over() -> None:
    value = "v" * (1024 * 1024)
    assert compiled(payload=["{{v}}"] * 16).render({"v": value})[1] == [value] * 16
    error = refused(compiled(payload=["{{v}}"] * 17), v=value)
    assert error.code == "payload_too_large"
    assert str(LARGEST_PAYLOAD) in str(error)
    assert refused(compiled(payload="{{v}}" * 50_000), v=value).code == "payload_too_large"
    many = compiled(payload=["{{v}}"] * 16 + ["{{w}}"])
    assert many.render({"v": "", "w": value * 2})[1][-1] == value * 2


def test_a_placeholder_may_be_there_many_times() -> None:
    _, rendered = compiled(payload={"a": "{{v}}," * 10_000, "b": ["{{v}}"] * 10_000}).render({"v": "1"})
    assert rendered == {"a": "1," * 10_000, "b": ["1"] * 10_000}


# --- without a payload ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", [http(), http(method="PUT"), http(method="DELETE"), {"url": "https://h.example/", "headers": {}}, kafka()]
)
def test_without_a_payload_the_row_is_sent(target: dict[str, Any]) -> None:
    row = {"z": "1", "a": "ä", "": "3"}
    template = compile_template(target=target, payload=None)
    rendered = template.render(row)[1]
    assert list(rendered.items()) == list(row.items())
    assert rendered is not row
    assert template.columns == frozenset()
    for broken in ({"a": "1", "b": "\0"}, {"a": "\ud800"}, {"a\0": "1"}):
        assert refused(template, **broken).code == "invalid_text"


@pytest.mark.parametrize("method", ["GET", "HEAD", "get"])
def test_a_request_without_a_body_stays_without(method: str) -> None:
    template = compile_template(target=http(URL, method=method), payload=None)
    assert template.render({"id": "1", "a": "\0"}) == (http(URL.replace("{{id}}", "1"), method=method), None)


def test_a_payload_that_is_empty_is_no_missing_one() -> None:
    empty: tuple[Any, ...] = ({}, [], "", 0, False)
    for payload in empty:
        assert compiled(payload=payload).render({"a": "1"})[1] is payload


# --- what is refused anywhere -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["\0", "a\0b", "\ud83d", "ä\udc80", "\ude00\ud83d"])
def test_a_nul_and_half_of_a_pair_stand_nowhere(value: str) -> None:
    for template in (
        compiled(http("https://h.example/{{a}}")),
        compiled(http("https://h.example/?{{a}}")),
        compiled(http(headers={"X": "{{a}}"})),
        compiled(kafka(key="{{a}}")),
        compiled(payload={"b": ["-{{a}}"]}),
        compiled(payload="{{a}}"),
    ):
        error = refused(template, a=value)
        assert error.code == "invalid_text"
        assert "'a'" in str(error)
        str(error).encode()
        assert "\0" not in str(error)


def test_two_halves_of_a_pair_do_not_make_a_whole() -> None:
    assert refused(compiled(payload="{{a}}{{b}}"), a="\ud83d", b="\ude00").code == "invalid_text"


def test_a_refusal_quotes_little_of_the_value() -> None:
    value = "".join(chr(0x4E00 + n) for n in range(2_000))
    for template, row in (
        (compiled(http("https://h.example/{{a}}")), value),
        (compiled(http("https://h.example/{{a}}")), "../" + value[:50] * 4),
        (compiled(http(headers={"X": "{{a}}"})), value),
        (compiled(kafka(key="{{a}}")), value),
        (compiled(kafka(key="{{a}}")), value[:900] + SECRET),
        (compiled(payload=["{{a}}"]), value + "\0"),
        (compile_template(target=http(), payload=None), value + "\ud800"),
    ):
        text = str(refused(template, a=row))
        assert sum(character in value for character in text) <= 100
        assert len(text) < 600
