"""MuJoCo's physics, faster: the same steps as MJX's, in fewer kernels.

`mjx_patches` replaces functions of MJX while an environment is traced, `newton` solves the
constraints, and `kernel` does it in one kernel or three on a GPU.
"""
