"""Motion capture: clips of a humanoid, read from files and looked up inside compiled programs."""
