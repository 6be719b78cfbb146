from .bucket import Bucket
from .dead_letter import DeadLetter
from .execution import Execution
from .job_definition import JobDefinition, JobKind
from .loop import Loop
from .switch import DispatchSwitch
from .worker import Worker

__all__ = ["Bucket", "DeadLetter", "DispatchSwitch", "Execution", "JobDefinition", "JobKind", "Loop", "Worker"]
