from django.urls import path

from execution.api import actions, dead_letters, notifications, views

urlpatterns = [
    path("job-definitions", views.JobDefinitionList.as_view()),
    path("job-definitions/<uuid:job_id>/run", views.JobDefinitionRun.as_view()),
    path("job-definitions/<uuid:job_id>/pause", views.JobDefinitionPause.as_view()),
    path("job-definitions/<uuid:job_id>/resume", views.JobDefinitionResume.as_view()),
    path("executions", views.ExecutionList.as_view()),
    path("executions/cancel", actions.ExecutionsCancel.as_view()),
    path("executions/replay", actions.ExecutionsReplay.as_view()),
    path("executions/<uuid:execution_id>", views.ExecutionDetail.as_view()),
    path("executions/<uuid:execution_id>/attempts", views.ExecutionAttempts.as_view()),
    path("executions/<uuid:execution_id>/logs", views.ExecutionLogs.as_view()),
    path("executions/<uuid:execution_id>/cancel", views.ExecutionCancel.as_view()),
    path("executions/<uuid:execution_id>/replay", dead_letters.ExecutionReplay.as_view()),
    path("dead-letters", dead_letters.DeadLetterList.as_view()),
    path("dead-letters/replay", actions.DeadLettersReplay.as_view()),
    path("dead-letters/discard", actions.DeadLettersDiscard.as_view()),
    path("dead-letters/<uuid:dead_letter_id>", dead_letters.DeadLetterDetail.as_view()),
    path("dead-letters/<uuid:dead_letter_id>/replay", dead_letters.DeadLetterReplay.as_view()),
    path("dead-letters/<uuid:dead_letter_id>/discard", dead_letters.DeadLetterDiscard.as_view()),
    path("notification-channels", notifications.ChannelList.as_view()),
    path("notification-channels/<uuid:channel_id>", notifications.ChannelDetail.as_view()),
    path("notification-channels/<uuid:channel_id>/test", notifications.ChannelTest.as_view()),
    path("notification-rules", notifications.RuleList.as_view()),
    path("notification-rules/<uuid:rule_id>", notifications.RuleDetail.as_view()),
    path("notification-rules/<uuid:rule_id>/test", notifications.RuleTest.as_view()),
    path("notifications", notifications.NotificationList.as_view()),
    path("notifications/<uuid:notification_id>", notifications.NotificationDetail.as_view()),
    path("notifications/<uuid:notification_id>/attempts", notifications.NotificationAttempts.as_view()),
]
