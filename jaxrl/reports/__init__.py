"""HTML reports and plots of runs; nothing here needs JAX."""
