"""Reranking by asking a language model: whole windows, small sets, or one passage at a time."""
