"""Bulk jobs under /v1: parse, call a service or selector, answer."""

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from bulk import progress, selectors, services
from bulk.api.refusals import bulk_refusals
from bulk.api.serializers import (
    BulkJobSerializer,
    BulkRecordSerializer,
    FirstLookSerializer,
    NewBulkJobSerializer,
)
from bulk.api.upload import StoringHandler, UploadParser, take_uploads
from bulk.domain.states import JobState, RecordState
from bulk.download import results_response
from bulk.models import BulkJob
from chronos_site.api.idempotency import idempotent
from chronos_site.api.problems import FieldProblem, Problem
from chronos_site.api.queries import CursorPage, QueryParameters
from chronos_site.api.serializers import shared
from chronos_site.infra import storage
from chronos_site.observability import tracing
from chronos_site.tenancy.authentication import calling_key
from execution.models import JobDefinition
from execution.selectors import find_job_definition


class BulkJobList(APIView):
    required_scopes: ClassVar = {"GET": "executions:read", "POST": "executions:write"}
    parser_classes = (UploadParser,)
    _upload: StoringHandler | None = None

    @extend_schema(
        operation_id="list_bulk_jobs",
        parameters=[
            OpenApiParameter("state", str, many=True, enum=[state.value for state in JobState]),
            OpenApiParameter("job_definition", str, many=True),
        ],
        responses=BulkJobSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Newest first."""
        query = QueryParameters(request, many={"state": JobState, "job_definition": UUID}, page=True)
        found = selectors.bulk_jobs(
            workspace=calling_key(request).workspace,
            states=query.many("state"),
            job_ids=query.many("job_definition"),
        )
        return CursorPage(query).answer(found, BulkJobSerializer)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Who asks is known before the first byte of a file is taken."""
        super().initial(request, *args, **kwargs)
        if request.method == "POST":
            self._upload = StoringHandler(calling_key(request).workspace_id)
            take_uploads(request, self._upload)
            with bulk_refusals():
                request.data  # noqa: B018 - reads the body, and so stores the file

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Whatever kept the file from becoming a job: nothing is left of it."""
        if self._upload is not None:
            self._upload.abandon()
        return super().finalize_response(request, response, *args, **kwargs)

    @extend_schema(
        operation_id="create_bulk_job",
        request={"multipart/form-data": NewBulkJobSerializer},
        responses={201: BulkJobSerializer, 200: FirstLookSerializer},
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Upload a CSV file; the job definition is delivered once for each row, `{{column}}` filled from it."""
        body = NewBulkJobSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        asked = body.validated_data
        file, dry_run = asked["file"], asked["dry_run"]
        workspace = calling_key(request).workspace
        job = _job_definition(request, asked["job"])
        with bulk_refusals():
            with storage.open_reader(file.object_name) as stream:
                look = services.look_at(
                    stream,
                    job=job,
                    delimiter=asked["delimiter"],
                    rows=services.SHOWN_ROWS if dry_run else 0,
                )
            if dry_run:
                return Response(FirstLookSerializer(look).data)
            made = services.create_bulk_job(
                workspace=workspace,
                job_id=file.job_id,
                job=job,
                file_name=file.file_name,
                size_bytes=file.size,
                delimiter=asked["delimiter"],
                max_invalid_share=asked["max_invalid_share"],
                start=asked["start"],
                traceparent=tracing.traceparent(),
            )
        self._keep()
        response = _answer(made, status=201)
        response["Location"] = f"/v1/bulk-jobs/{made.id}"
        return response

    def _keep(self) -> None:
        self._upload = None


class BulkJobDetail(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_bulk_job", responses=BulkJobSerializer)
    def get(self, request: Request, job_id: UUID) -> Response:
        QueryParameters(request)
        return _answer(_bulk_job(request, job_id))


class BulkJobProgress(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_bulk_job_progress", responses=OpenApiTypes.OBJECT)
    def get(self, request: Request, job_id: UUID) -> Response:
        """Counts, rate and time left; the same as the socket sends."""
        QueryParameters(request)
        return Response(progress.shown(_bulk_job(request, job_id)))


class BulkJobRecords(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}
    paged = True

    @extend_schema(
        operation_id="list_bulk_job_records",
        parameters=[OpenApiParameter("state", str, many=True, enum=[state.value for state in RecordState])],
        responses=BulkRecordSerializer(many=True),
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        """The rows, the last of the file first."""
        query = QueryParameters(request, many={"state": RecordState}, page=True)
        found = selectors.records(job=_bulk_job(request, job_id), states=query.many("state"))
        return CursorPage(query).answer(found, BulkRecordSerializer)


class BulkJobResults(APIView):
    required_scopes: ClassVar = {"GET": "executions:read"}

    @extend_schema(operation_id="get_bulk_job_results", responses={(200, "text/csv"): OpenApiTypes.BINARY})
    def get(self, request: Request, job_id: UUID) -> HttpResponseBase:
        """A CSV file with a line for each row: row, status, attempts, code, error, response. 409 before the end."""
        QueryParameters(request)
        job = _bulk_job(request, job_id)
        if job.results_bytes is None:
            raise Problem(409, "no_results", f"The bulk job is {job.state}: there are no results.", state=job.state)
        with bulk_refusals():
            stream = storage.open_reader(job.results_name)
        return results_response(job, stream)


class _Action(APIView):
    """POST …/{id}/<verb>: safe to repeat."""

    required_scopes: ClassVar = {"POST": "executions:write"}
    change: Callable[..., BulkJob]
    status = 200

    def act(self, request: Request, job_id: UUID) -> Response:
        QueryParameters(request)
        with bulk_refusals():
            job = type(self).change(workspace=calling_key(request).workspace, job_id=job_id)
        return _answer(job, status=self.status if job.finished_at is None else 200)


class BulkJobStart(_Action):
    change = staticmethod(services.start_bulk_job)

    @extend_schema(operation_id="start_bulk_job", request=None, responses=BulkJobSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Send what waits, after an upload with `start=false` or a pause."""
        return self.act(request, job_id)


class BulkJobPause(_Action):
    change = staticmethod(services.pause_bulk_job)

    @extend_schema(operation_id="pause_bulk_job", request=None, responses=BulkJobSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Begin no further row; sends under way end."""
        return self.act(request, job_id)


class BulkJobCancel(_Action):
    change = staticmethod(services.cancel_bulk_job)
    status = 202

    @extend_schema(
        operation_id="cancel_bulk_job", request=None, responses={200: BulkJobSerializer, 202: BulkJobSerializer}
    )
    def post(self, request: Request, job_id: UUID) -> Response:
        """Rows that are not under way will not be sent. 202 while some are."""
        return self.act(request, job_id)


class BulkJobRetryFailed(_Action):
    change = staticmethod(services.retry_failed_rows)

    @extend_schema(operation_id="retry_failed_rows", request=None, responses=BulkJobSerializer)
    def post(self, request: Request, job_id: UUID) -> Response:
        """Send again what failed, and nothing else."""
        return self.act(request, job_id)


def _bulk_job(request: Request, job_id: UUID) -> BulkJob:
    with bulk_refusals():
        return selectors.bulk_job(workspace=calling_key(request).workspace, job_id=job_id)


def _job_definition(request: Request, text: str) -> JobDefinition:
    job = find_job_definition(workspace=calling_key(request).workspace, id_or_name=text)
    if job is None:
        detail = f"There is no job definition {text!r} in this workspace."
        places = [FieldProblem("/job", "not_found", detail)]
        raise Problem(422, "job_definition_not_found", detail, errors=places)
    return job


def _answer(job: BulkJob, *, status: int = 200) -> Response:
    return Response(shared(BulkJobSerializer).to_representation(job), status=status)
