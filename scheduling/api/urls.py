from django.urls import path

from scheduling.api import actions, ahead, by_key, views

urlpatterns = [
    path("job-definitions/<uuid:job_id>", views.JobDefinitionWithSchedules.as_view()),
    path("schedules", views.ScheduleList.as_view()),
    path("schedules/batch", views.ScheduleBatch.as_view()),
    path("schedules/preview", ahead.SchedulePreview.as_view()),
    # A key may hold slashes.
    path("schedules/by-key/<path:external_key>", by_key.ScheduleByKey.as_view()),
    path("schedules/<uuid:schedule_id>", views.ScheduleDetail.as_view()),
    path("schedules/<uuid:schedule_id>/occurrences", ahead.ScheduleOccurrences.as_view()),
    path("schedules/<uuid:schedule_id>/pause", actions.SchedulePause.as_view()),
    path("schedules/<uuid:schedule_id>/resume", actions.ScheduleResume.as_view()),
    path("schedules/<uuid:schedule_id>/run", actions.ScheduleRun.as_view()),
    path("schedules/<uuid:schedule_id>/skip-next", actions.ScheduleSkipNext.as_view()),
    path("schedules/<uuid:schedule_id>/cancel", actions.ScheduleCancel.as_view()),
    path("schedules/<uuid:schedule_id>/backfill", actions.ScheduleBackfill.as_view()),
]
