"""Metrics, audit records and log output."""
