from django.urls import path

from scheduling.api import views

urlpatterns = [
    path("job-definitions/<uuid:job_id>", views.JobDefinitionWithSchedules.as_view()),
    path("schedules", views.ScheduleList.as_view()),
    path("schedules/batch", views.ScheduleBatch.as_view()),
    path("schedules/<uuid:schedule_id>", views.ScheduleDetail.as_view()),
    path("schedules/<uuid:schedule_id>/cancel", views.ScheduleCancel.as_view()),
]
