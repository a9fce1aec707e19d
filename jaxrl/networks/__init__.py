"""Networks, built from an environment's spec."""
