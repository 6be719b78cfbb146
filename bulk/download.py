"""The results of a bulk job as a download."""

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse

from bulk.models import BulkJob

PIECE = 256 * 1024


def results_response(job: BulkJob, stream: Any) -> StreamingHttpResponse:
    """A CSV file, in pieces; closes the stream."""

    def pieces() -> Iterator[bytes]:
        with stream:
            while piece := stream.read(PIECE):
                yield piece

    response = StreamingHttpResponse(pieces(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="results-{job.id}.csv"'
    response["Content-Length"] = str(job.results_bytes)
    response["X-Content-Type-Options"] = "nosniff"
    return response
