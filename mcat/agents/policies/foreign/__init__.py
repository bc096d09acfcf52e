"""Policies from elsewhere and for elsewhere: ONNX, stable-baselines3, CleanRL, own code."""
