"""Figures: the style they share, and kinds of them that several studies draw."""
