from .schedule import ScheduleAdmin

__all__ = ["ScheduleAdmin"]
