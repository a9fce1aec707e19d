"""Whole episodes of a policy, and what they show."""
