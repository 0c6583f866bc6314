"""Tokens of identity providers: their keys, and the verification of the tokens."""
