"""The host loop: start or resume, train cycle by cycle, evaluate, save, finish."""
