"""Who may read what: the catalog of shares, bearer tokens, sealed tokens, stored recipients."""
