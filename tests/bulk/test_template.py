"""Templates of bulk jobs: what a placeholder is, where it may stand, and which columns it may name."""

import re
from typing import Any

import pytest

from bulk.domain.template import TemplateError
from tests.bulk.templates import SECRET, URL, compiled, http, kafka, refused, wrong

# --- what a placeholder is --------------------------------------------------------------------------------


def test_every_place_is_filled_and_values_stay_strings() -> None:
    target = http(
        "https://h.example/a/{{id}}?q={{name}}#{{id}}", headers={"X-Id": "{{id}}", "x-both": "{{id}}/{{ name }}"}
    )
    payload = {"id": "{{id}}", "text": "Dear {{ name }}, {{id}}!", "list": ["{{id}}", {"deep": "{{name}}"}]}
    template = compiled(target, payload)
    assert template.columns == {"id", "name"}
    assert template.render({"id": "7", "name": "A B", "other": "x"}) == (
        {
            "url": "https://h.example/a/7?q=A%20B#7",
            "method": "POST",
            "headers": {"X-Id": "7", "x-both": "7/A B"},
        },
        {"id": "7", "text": "Dear A B, 7!", "list": ["7", {"deep": "A B"}]},
    )


def test_a_kafka_message_has_placeholders_in_key_and_headers() -> None:
    target = kafka(key="{{ id }}-k", headers={"x": "{{id}}"}, partition=3)
    assert compiled(target).render({"id": "7"})[0] == {
        "topic": "orders",
        "headers": {"x": "7"},
        "key": "7-k",
        "partition": 3,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{a}}", "V"),
        ("{{   a   }}", "V"),
        ("{{{a}}}", "{V}"),
        ('{"x": {"y": "{{a}}"}}', '{"x": {"y": "V"}}'),
        ("{a} { } }} 100% %s %(a)s", "{a} { } }} 100% %s %(a)s"),
        ("100%{{a}}%s%%", "100%V%s%%"),
        ("{{a}}{{a}}{{a}}", "VVV"),
        ("{{ a b/c.d|e%s?# }}", "W"),
        ("{{ä\t€}}", "X"),
    ],
)
def test_a_placeholder_is_a_name_between_double_braces_and_all_else_is_data(text: str, expected: str) -> None:
    row = {"a": "V", "a b/c.d|e%s?#": "W", "ä\t€": "X"}
    assert compiled(payload=[text]).render(row)[1] == [expected]
    assert compiled(payload=text).render(row)[1] == expected


@pytest.mark.parametrize(
    "text", ["{{", "a {{b", "{{a}", "{{a}b}}", "{{a{b}}", "{{a {{b}}", "{{{{a}}}}", "{{{", "{{a}} {{"]
)
def test_braces_that_do_not_close_are_no_template(text: str) -> None:
    for target, payload, pointer in (
        (None, {"items": [{"name": text}]}, "/payload/items/0/name"),
        (None, text, "/payload"),
        (http("https://h.example/" + text), 1, "/target/url"),
        (http(headers={"X": text}), 1, "/target/headers/X"),
        (kafka(key=text), 1, "/target/key"),
    ):
        error = wrong(target, payload)
        assert (error.code, error.pointer) == ("unclosed_placeholder", pointer)
        assert pointer in str(error)


@pytest.mark.parametrize("text", ["{{}}", "{{  }}", "{{\t}}", "x{{a}}{{}}"])
def test_a_placeholder_without_a_name_is_no_template(text: str) -> None:
    error = wrong(payload={"a/b": {"~": text}})
    assert (error.code, error.pointer) == ("empty_placeholder", "/payload/a~1b/~0")


def test_what_a_value_holds_is_no_template() -> None:
    template = compiled(http(URL, headers={"X": "{{id}}"}), {"a": "{{id}}{{b}}", "b": "{{b}}"})
    target, payload = template.render({"id": "{{b}}", "b": "{{id}} %s {{"})
    assert target["url"] == "https://api.example.com/users/%7B%7Bb%7D%7D"
    assert target["headers"] == {"X": "{{b}}"}
    assert payload == {"a": "{{b}}{{id}} %s {{", "b": "{{id}} %s {{"}


# --- where none may stand ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "{{url}}",
        "{{scheme}}://h.example/",
        "http{{s}}://h.example/",
        "https:{{x}}",
        "https:/{{x}}",
        "https://{{host}}/",
        "https://{{host}}",
        "https://api.{{host}}/a",
        "https://h.example{{x}}",
        "https://h.example:{{port}}/",
        "https://h.example:443{{x}}/",
        "https://{{user}}@h.example/",
        "https://u:{{password}}@h.example/",
        "https:///{{host}}/",
        "https://?{{a}}",
        "https://\t/{{host}}",
        "https://h.example\\{{a}}",
        "//{{host}}/",
        "/{{a}}",
        "{{a/b?c#}}://h.example/",
    ],
)
def test_a_row_never_chooses_scheme_user_host_or_port(url: str) -> None:
    error = wrong(http(url))
    assert (error.code, error.pointer) == ("misplaced_placeholder", "/target/url")


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        (http(headers={"X-{{a}}": "b"}), "/target/headers/X-{{a}}"),
        (http(headers={"{{a/b}}": "{{a}}"}), "/target/headers/{{a~1b}}"),
        (http(method="{{a}}"), "/target/method"),
        (kafka(topic="t-{{a}}"), "/target/topic"),
        (kafka(bootstrap="{{a}}:9092"), "/target/bootstrap"),
        (kafka(partition="{{a}}"), "/target/partition"),
        (kafka(url=URL), "/target/url"),
        (http(key="{{a}}"), "/target/key"),
        (http(more=[{"a": "{{a}}"}]), "/target/more/0/a"),
        ({**http(), "{{a}}": 1}, "/target/{{a}}"),
    ],
)
def test_no_placeholder_stands_in_another_member_of_the_target(target: dict[str, Any], pointer: str) -> None:
    error = wrong(target)
    assert (error.code, error.pointer) == ("misplaced_placeholder", pointer)
    assert pointer in str(error)


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        (http(auth={"type": "basic", "username": "{{a}}", "password": SECRET}), "/target/auth/username"),
        (http(auth={"type": "bearer", "token": "secret://acme/{{a}}/b"}), "/target/auth/token"),
        (http(auth={"type": "api_key", "header": "X-{{a}}", "value": SECRET}), "/target/auth/header"),
        (http(auth={"type": "{{a}}"}), "/target/auth/type"),
        (http(signing={"secret": "{{a}}"}), "/target/signing/secret"),
        (kafka(signing={"secret": SECRET, "previous_secret": "{{a}}"}), "/target/signing/previous_secret"),
        (http(headers={"Authorization": "Bearer secret://acme/{{a}}/token"}), "/target/headers/Authorization"),
        (http(headers={"X": "{{scheme}} SECRET://acme/api/token"}), "/target/headers/X"),
        (kafka(key="secret://acme/api/{{a}}"), "/target/key"),
        (http("https://h.example/?secret://a/b/{{c}}"), "/target/url"),
    ],
)
def test_a_row_never_chooses_a_secret(target: dict[str, Any], pointer: str) -> None:
    error = wrong(target)
    assert (error.code, error.pointer) == ("placeholder_in_secret", pointer)
    assert pointer in str(error)


def test_no_placeholder_stands_beside_a_secret_in_the_payload() -> None:
    error = wrong(payload=["secret://acme/{{a}}/b"])
    assert (error.code, error.pointer) == ("placeholder_in_secret", "/payload/0")


def test_a_secret_beside_placeholders_elsewhere_stays() -> None:
    target = http(
        URL, headers={"Authorization": f"Bearer {SECRET}", "X": "{{id}}"}, auth={"type": "bearer", "token": SECRET}
    )
    rendered, _ = compiled(target).render({"id": "1"})
    assert rendered["headers"] == {"Authorization": f"Bearer {SECRET}", "X": "1"}
    assert rendered["auth"] is target["auth"]


@pytest.mark.parametrize(
    ("payload", "pointer"),
    [
        ({"{{a}}": 1}, "/payload/{{a}}"),
        ([{"b": {"x {{": 1}}], "/payload/0/b/x {{"),
    ],
)
def test_no_placeholder_stands_in_the_name_of_a_member(payload: Any, pointer: str) -> None:
    error = wrong(payload=payload)
    assert (error.code, error.pointer) == ("misplaced_placeholder", pointer)


@pytest.mark.parametrize("broken", ["\0", "\ud83d"])
def test_a_template_holds_no_broken_text(broken: str) -> None:
    assert wrong(payload=["{{a}}" + broken]).code == "invalid_text"
    assert wrong(http(URL + broken)).code == "invalid_text"
    assert wrong(kafka(key="{{a" + broken + "}}")).code == "invalid_text"


# --- columns ----------------------------------------------------------------------------------------------


def test_columns_that_the_file_has_not_are_named_with_their_place() -> None:
    template = compiled(http(URL), {"a": ["x", "{{name}}"], "b": "{{third}}"})
    template.check_columns(["name", "id", "third", "more"])
    template.check_columns(iter(("third", "name", "id")))
    for columns, unknown, pointer in (
        (["name", "third"], "id", "/target/url"),
        (["id", "Name", "third"], "name", "/payload/a/1"),
        (["id", "name"], "third", "/payload/b"),
        ([], "id", "/target/url"),
    ):
        with pytest.raises(TemplateError) as caught:
            template.check_columns(columns)
        assert (caught.value.code, caught.value.pointer) == ("unknown_column", pointer)
        for word in (repr(unknown), pointer, *map(repr, columns)):
            assert word in str(caught.value)


def test_the_message_of_an_unknown_column_stays_short() -> None:
    with pytest.raises(TemplateError) as caught:
        compiled(payload=["{{" + "u" * 5000 + "}}"]).check_columns([f"{n}-" + "c" * 5000 for n in range(1000)])
    assert len(str(caught.value)) < 3000


def test_a_column_with_spaces_at_its_ends_is_not_what_a_placeholder_names() -> None:
    with pytest.raises(TemplateError, match=re.escape("' id'")):
        compiled(payload=["{{ id }}"]).check_columns([" id"])


def test_a_row_without_a_named_column_is_refused() -> None:
    assert refused(compiled(payload=["{{a}}{{b}}"]), a="1").code == "missing_column"


def test_a_template_without_placeholders_names_no_columns() -> None:
    template = compiled(http(), {"a": 1})
    assert template.columns == frozenset()
    template.check_columns([])
