"""On-policy learning from single steps: `algorithm.train_step` first, for REPPO and PQN.

PPO, which also learns from segments and trains recurrent layers, has a package of its own.
"""
