"""Trials: advised changes applied to the user's own job from outside, measured in pairs, and thrown away."""
