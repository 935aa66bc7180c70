"""Listings: functions of the IR as text that reads like Python."""
