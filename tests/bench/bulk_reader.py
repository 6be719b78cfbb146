"""`python -m tests.bench.bulk_reader JOB`: read the file of a bulk job, and say what that took.

The last line of the output is JSON: rows, took_s, and by how many MiB the process has grown at its most.
"""

import json
import sys
import time
from uuid import UUID

import django
import psutil


def main() -> None:
    django.setup()
    from bulk import work  # noqa: PLC0415 - they need Django
    from bulk.models import BulkJob  # noqa: PLC0415
    from tests.bench.usage import Usage  # noqa: PLC0415

    job_id = UUID(sys.argv[1])
    BulkJob.objects.get(id=job_id)  # The connection is not part of it.
    process = psutil.Process()
    before = process.memory_info().rss
    with Usage([process]) as usage:
        begun = time.monotonic()
        work.work(job_id)
        took = time.monotonic() - begun
    told = {
        "rows": BulkJob.objects.get(id=job_id).total,
        "took_s": took,
        "cpu_s": usage.cpu_s,
        "grown_mib": usage.peak_mib - before / 2**20,
    }
    print(json.dumps(told))  # noqa: T201 - read by who started it


if __name__ == "__main__":
    main()
