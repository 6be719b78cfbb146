from .job import BulkJobAdmin

__all__ = ["BulkJobAdmin"]
