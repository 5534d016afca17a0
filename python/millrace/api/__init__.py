"""The Python interface: functions that start runs, and the record protocol for programs that Millrace calls."""
