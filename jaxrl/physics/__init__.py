"""MuJoCo's physics, faster: the same steps as MJX's, in fewer kernels."""
