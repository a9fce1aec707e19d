"""Learning from replay: SAC, TD3 and DQN, with rewards learnt from returns."""
