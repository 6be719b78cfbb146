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


def test_a_folder_or_a_bucket_becomes_the_storage_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_URL", "")
    assert env.storage("STORAGE_URL") == {}
    monkeypatch.setenv("STORAGE_URL", "file:///var/lib/of%20chronos")
    assert env.storage("STORAGE_URL")["objects"]["OPTIONS"] == {"location": "/var/lib/of chronos"}
    monkeypatch.setenv("STORAGE_URL", "s3://files/a/b?endpoint=https://minio:9000&region=eu-1&addressing=path")
    monkeypatch.setenv("STORAGE_ACCESS_KEY", "one")
    monkeypatch.setenv("STORAGE_SECRET_KEY", "two")
    assert env.storage("STORAGE_URL")["objects"]["OPTIONS"] == {
        "bucket_name": "files",
        "location": "a/b",
        "endpoint_url": "https://minio:9000",
        "region_name": "eu-1",
        "addressing_style": "path",
        "access_key": "one",
        "secret_key": "two",
    }


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("/var/lib/objects", "begins with file:/// or s3://"),
        ("https://bucket.s3.amazonaws.com", "begins with file:/// or s3://"),
        ("s3://[hidden/x", "it is no URL"),
        ("file://var/lib/objects", "three slashes"),
        ("file:relative", "three slashes"),
        ("file:///", "three slashes"),
        ("file:///a?b=c", "three slashes"),
        ("s3://key:hidden@bucket", "set STORAGE_ACCESS_KEY and STORAGE_SECRET_KEY"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("s3://Bucket", "s3://bucket/prefix"),
        ("s3://bucket:9000", "s3://bucket/prefix"),
        ("s3://bucket/a//b", "the prefix after the bucket"),
        ("s3://bucket/../b", "the prefix after the bucket"),
        ("s3://bucket?secret=hidden", "'secret' is no option of s3://"),
        ("s3://bucket?addressing=hidden", "addressing is one of auto, path, virtual"),
        ("s3://bucket?region=hidden%20place", "region is a word"),
        ("s3://bucket?endpoint=minio:9000", "endpoint must look like http://host:port"),
        ("s3://bucket?endpoint=http://key:hidden@minio:9000", "endpoint must look like http://host:port"),
        ("s3://bucket?endpoint=http://minio:hidden", "endpoint must look like http://host:port"),
        ("s3://bucket?endpoint=http://minio/path", "endpoint must look like http://host:port"),
    ],
)
def test_a_storage_url_of_another_shape_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, raw: str, told: str
) -> None:
    monkeypatch.setenv("STORAGE_URL", raw)
    with pytest.raises(ImproperlyConfigured, match=r"STORAGE_URL: .*\.$") as caught:
        env.storage("STORAGE_URL")
    assert told in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["STORAGE_ACCESS_KEY", "STORAGE_SECRET_KEY"])
def test_one_key_of_the_storage_without_the_other_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("STORAGE_URL", "s3://bucket")
    monkeypatch.setenv(name, "hidden")
    with pytest.raises(ImproperlyConfigured, match="are set both or not at all"):
        env.storage("STORAGE_URL")
