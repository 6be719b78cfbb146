from .execution import DeadLetterAdmin, ExecutionAdmin
from .job_definition import JobDefinitionAdmin
from .running import BucketAdmin, WorkerAdmin
from .switch import DispatchSwitchAdmin

__all__ = [
    "BucketAdmin",
    "DeadLetterAdmin",
    "DispatchSwitchAdmin",
    "ExecutionAdmin",
    "JobDefinitionAdmin",
    "WorkerAdmin",
]
