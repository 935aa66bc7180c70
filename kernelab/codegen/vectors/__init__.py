"""Vector code for the CPU: functions as C++ over groups of threads."""
