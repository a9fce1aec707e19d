"""Learning from replay: `algorithm.train_step` for SAC, TD3 and DQN, and learnt rewards."""
