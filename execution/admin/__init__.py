from .notifications import (
    NotificationAdmin,
    NotificationChannelAdmin,
    NotificationFactAdmin,
    NotificationRuleAdmin,
)
from .switch import DispatchSwitchAdmin

__all__ = [
    "DispatchSwitchAdmin",
    "NotificationAdmin",
    "NotificationChannelAdmin",
    "NotificationFactAdmin",
    "NotificationRuleAdmin",
]
