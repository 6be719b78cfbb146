from .bucket import Bucket
from .dead_letter import DeadLetter
from .execution import Execution
from .job_definition import JobDefinition, JobKind
from .loop import Loop
from .notification import NotificationChannel, NotificationFact, NotificationRule, NotificationState
from .outgoing import Notification
from .switch import DispatchSwitch
from .worker import Worker

__all__ = [
    "Bucket",
    "DeadLetter",
    "DispatchSwitch",
    "Execution",
    "JobDefinition",
    "JobKind",
    "Loop",
    "Notification",
    "NotificationChannel",
    "NotificationFact",
    "NotificationRule",
    "NotificationState",
    "Worker",
]
