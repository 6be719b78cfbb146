"""The one call that every peer makes for each job: a POST with a small JSON body."""

import os
import threading
from functools import cache

import requests
from pyreqwest.client import Client, ClientBuilder

URL = os.environ.get("BENCH_URL", "")
REDIS = os.environ.get("BENCH_REDIS", "")
DATABASE = os.environ.get("BENCH_DATABASE", "")

_local = threading.local()


def call(number: int) -> None:
    """By `requests`, over one session for each thread."""
    if not hasattr(_local, "session"):
        _local.session = requests.Session()
    _local.session.post(URL, json={"n": number}, timeout=30).raise_for_status()


@cache
def client() -> Client:
    """The client that Chronos uses, one for each process."""
    return ClientBuilder().no_proxy().follow_redirects(False).build()


async def call_async(number: int) -> None:
    """For peers that are asynchronous."""
    response = await client().post(URL).body_json({"n": number}).build().send()
    assert response.status == 200
