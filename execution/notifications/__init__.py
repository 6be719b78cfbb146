"""Notifications: facts written where they happen, rules that weigh and group them, channels that they are sent to."""
