"""Shared tables: opening, signing, cached answers."""
