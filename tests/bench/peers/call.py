"""The one call that every peer makes for each job: a POST with a small JSON body."""

import os
import threading

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


def build_client() -> Client:
    """For peers that are asynchronous: the client that Chronos uses."""
    return ClientBuilder().no_proxy().follow_redirects(False).build()


async def call_async(client: Client, number: int) -> None:
    response = await client.post(URL).body_json({"n": number}).build().send()
    assert response.status == 200
