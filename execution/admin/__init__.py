from .switch import DispatchSwitchAdmin

__all__ = ["DispatchSwitchAdmin"]
