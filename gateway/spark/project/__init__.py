"""Projections: tables with fewer rows and columns of a source, written, proved and published by Spark."""
