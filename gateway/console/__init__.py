"""The console: pages on the admin listener that show what the server shares, and to whom.

`app` has the table of pages. `sessions` and `protection` decide who sees them; `share_pages`,
`recipient_pages` and `operation_pages` answer them by templates that `rendering` fills in. What changes goes
through the operations of the admin API. `questions` are what a page asks of the processes that serve, and
`inspection` answers them there.
"""
