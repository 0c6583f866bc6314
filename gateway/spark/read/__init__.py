"""The data source: listing, fetching and decoding of shared tables."""
