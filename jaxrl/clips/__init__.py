"""Commands for motion clips: convert, inspect, plan."""
