from .bucket import Bucket
from .execution import Execution
from .job_definition import JobDefinition, JobKind
from .worker import Worker

__all__ = ["Bucket", "Execution", "JobDefinition", "JobKind", "Worker"]
