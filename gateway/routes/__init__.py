"""Handlers, a room for each noun of the protocol: parse, decide, answer."""
