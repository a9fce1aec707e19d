"""Learning algorithms: compositions of rollout, maths and networks."""
