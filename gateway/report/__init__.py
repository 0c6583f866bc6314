"""Pages in HTML: plots, numbers with units, times in words, style sheets, and whole reports in one file.

In: names, numbers and sentences. Out: HTML text with inline styles, script and SVG, which fetches nothing.
All text is escaped, because rows of tables and names of recipients are untrusted. Equal input gives equal
bytes.

Jinja2 and matplotlib are part of the extra `spark`. They are imported when a page is rendered, never by a
server.
"""
