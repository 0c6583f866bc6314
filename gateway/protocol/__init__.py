"""The Delta Sharing protocol: capabilities, queries and parsing. No network here."""
