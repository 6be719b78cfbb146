"""`STORAGE_URL` as Django's configuration of a storage. Reads nothing and connects to nothing."""

import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

FOLDER_BACKEND = "chronos_site.infra.storage_folder.FolderObjects"
S3_BACKEND = "chronos_site.infra.storage_s3.S3Objects"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(?=.{1,500}$)[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_ADDRESSING = ("auto", "path", "virtual")


def backend_of(url: str, *, access_key: str | None, secret_key: str | None) -> dict[str, Any]:
    """Django's STORAGES entry for a URL. Raises ValueError with one sentence, which does not repeat the URL's secrets.

    `file:///absolute/folder`, or `s3://bucket/prefix?endpoint=http://host:port&region=…&addressing=auto|path|virtual`.
    """
    parts = _split(url)
    if parts.scheme == "file":
        return {"BACKEND": FOLDER_BACKEND, "OPTIONS": {"location": _folder_of(parts)}}
    if parts.scheme == "s3":
        return {"BACKEND": S3_BACKEND, "OPTIONS": _bucket_of(parts, access_key, secret_key)}
    raise ValueError("a URL of storage begins with file:/// or s3://")


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # Its own words may repeat a part of the URL.
        raise ValueError("it is no URL") from None


def _folder_of(parts: SplitResult) -> str:
    folder = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not folder.startswith("/") or not folder.strip("/"):
        raise ValueError("a folder is written file:///absolute/folder, with three slashes and nothing after it")
    return folder


def _bucket_of(parts: SplitResult, access_key: str | None, secret_key: str | None) -> dict[str, Any]:
    if "@" in parts.netloc:
        raise ValueError("keys do not belong into the URL; set STORAGE_ACCESS_KEY and STORAGE_SECRET_KEY")
    if not _BUCKET.fullmatch(parts.netloc) or parts.fragment:
        raise ValueError("a bucket is written s3://bucket/prefix, the bucket in lower case, without a port")
    prefix = parts.path.strip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise ValueError("the prefix after the bucket has letters, digits, '.', '_', '-' and single slashes")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint, region = options.pop("endpoint", None), options.pop("region", None)
    addressing = options.pop("addressing", "auto")
    if options:
        raise ValueError(f"{sorted(options)[0]!r} is no option of s3://; there are endpoint, region and addressing")
    if addressing not in _ADDRESSING:
        raise ValueError(f"addressing is one of {', '.join(_ADDRESSING)}")
    if endpoint is not None:
        _check_endpoint(endpoint)
    if region is not None and not re.fullmatch(r"[a-z0-9-]+", region):
        raise ValueError("region is a word such as eu-central-1")
    if (access_key is None) != (secret_key is None):
        raise ValueError("STORAGE_ACCESS_KEY and STORAGE_SECRET_KEY are set both or not at all")
    return {
        "bucket_name": parts.netloc,
        "location": prefix,
        "endpoint_url": endpoint,
        "region_name": region,
        "addressing_style": addressing,
        "access_key": access_key,
        "secret_key": secret_key,
    }


def _check_endpoint(endpoint: str) -> None:
    parts = _split(endpoint)
    try:
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or parts.query or parts.fragment or parts.path.strip("/"):
        raise ValueError("endpoint must look like http://host:port, without a path and without keys")
