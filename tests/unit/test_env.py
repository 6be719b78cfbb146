"""Settings from the environment: a value that cannot be read is one clear sentence."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from chronos_site.settings import env


@pytest.mark.parametrize("raw", ["127.0.0.1/8", "127.0.0.1", "ten/8", "10.0.0.0/8, nonsense"])
def test_a_network_that_is_not_exact_is_refused_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch, raw: str
) -> None:
    monkeypatch.setenv("CHRONOS_EGRESS_ALLOW", raw)
    with pytest.raises(ImproperlyConfigured, match="CHRONOS_EGRESS_ALLOW: "):
        env.networks("CHRONOS_EGRESS_ALLOW")


def test_exact_networks_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONOS_EGRESS_ALLOW", "127.0.0.0/8, ::1/128")
    assert env.networks("CHRONOS_EGRESS_ALLOW") == ["127.0.0.0/8", "::1/128"]


@pytest.mark.parametrize("raw", ["abc", "0", "1.5", "999999"])
def test_a_number_outside_its_range_or_none_is_refused(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("CHRONOS_MAX_IN_FLIGHT", raw)
    with pytest.raises(ImproperlyConfigured, match="CHRONOS_MAX_IN_FLIGHT="):
        env.integer("CHRONOS_MAX_IN_FLIGHT", 1000, low=1, high=20_000)


def test_a_flag_is_true_or_false_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_DEBUG", "maybe")
    with pytest.raises(ImproperlyConfigured, match="DJANGO_DEBUG='maybe'"):
        env.flag("DJANGO_DEBUG")
    monkeypatch.setenv("DJANGO_DEBUG", "yes")
    assert env.flag("DJANGO_DEBUG")


@pytest.mark.parametrize("raw", ["mysql://a:b@c/d", "postgresql://", "postgresql://u:p@host/"])
def test_a_database_url_of_another_shape_is_refused(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("DATABASE_URL", raw)
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL must look like"):
        env.postgres("DATABASE_URL", pool={})


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({}, None),
        ({"ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces"),
        ({"ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({"ENDPOINT": "http://c:4318", "TRACES_ENDPOINT": "http://d/as-it-is"}, "http://d/as-it-is"),
        ({"TRACES_ENDPOINT": "http://d/t", "PROTOCOL": "http/protobuf"}, "http://d/t"),
    ],
)
def test_spans_go_where_opentelemetry_s_variables_say(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], endpoint: str | None
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    assert env.traces_endpoint() == endpoint
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert env.traces_endpoint() is None
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert env.traces_endpoint() is None


@pytest.mark.parametrize(
    ("name", "value"), [("ENDPOINT", "bob:pw@c:4318"), ("TRACES_ENDPOINT", "http://"), ("PROTOCOL", "grpc")]
)
def test_a_receiver_of_spans_that_cannot_be_called_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
    with pytest.raises(ImproperlyConfigured, match=f"^OTEL_EXPORTER_OTLP_{name}") as refused:
        env.traces_endpoint()
    assert "pw" not in str(refused.value)
