"""Access control: the catalog of shares, bearer tokens, sealed tokens, stored recipients."""
