from django.urls import path

from bulk.api import views

urlpatterns = [
    path("bulk-jobs", views.BulkJobList.as_view()),
    path("bulk-jobs/<uuid:job_id>", views.BulkJobDetail.as_view()),
    path("bulk-jobs/<uuid:job_id>/progress", views.BulkJobProgress.as_view()),
    path("bulk-jobs/<uuid:job_id>/records", views.BulkJobRecords.as_view()),
    path("bulk-jobs/<uuid:job_id>/results", views.BulkJobResults.as_view()),
    path("bulk-jobs/<uuid:job_id>/start", views.BulkJobStart.as_view()),
    path("bulk-jobs/<uuid:job_id>/pause", views.BulkJobPause.as_view()),
    path("bulk-jobs/<uuid:job_id>/cancel", views.BulkJobCancel.as_view()),
    path("bulk-jobs/<uuid:job_id>/retry-failed", views.BulkJobRetryFailed.as_view()),
]
