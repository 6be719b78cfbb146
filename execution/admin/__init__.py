from .execution import DeadLetterAdmin, ExecutionAdmin
from .job_definition import JobDefinitionAdmin
from .notifications import (
    NotificationAdmin,
    NotificationChannelAdmin,
    NotificationFactAdmin,
    NotificationRuleAdmin,
)
from .running import BucketAdmin, WorkerAdmin
from .switch import DispatchSwitchAdmin

__all__ = [
    "BucketAdmin",
    "DeadLetterAdmin",
    "DispatchSwitchAdmin",
    "ExecutionAdmin",
    "JobDefinitionAdmin",
    "NotificationAdmin",
    "NotificationChannelAdmin",
    "NotificationFactAdmin",
    "NotificationRuleAdmin",
    "WorkerAdmin",
]
