"""Gymnasium environments, stepped in worker processes on the CPU."""
