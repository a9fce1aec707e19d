"""From a configuration to compiled programs, for devices, Gymnasium and recorded data."""
