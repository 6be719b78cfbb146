"""The site's own rows: workers as they tell of themselves, and the minute buckets."""

from django.contrib import admin

from chronos_site.tenancy.admin_base import ReadOnlySiteAdmin
from execution.models import Bucket, Worker


@admin.register(Worker)
class WorkerAdmin(ReadOnlySiteAdmin):
    list_display = ("name", "queue", "in_flight", "rate_per_s", "stopping", "heartbeat_at", "started_at")
    list_filter = ("stopping",)
    search_fields = ("name",)
    ordering = ("-heartbeat_at",)


@admin.register(Bucket)
class BucketAdmin(ReadOnlySiteAdmin):
    list_display = ("id", "state", "triggered_at", "opened_at", "closed_at")
    list_filter = ("state",)
    ordering = ("-id",)
