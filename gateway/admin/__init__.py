"""The admin API: recipients, metrics and reload over HTTP, on a separate listener.

`app` has the table of operations and `handlers` carries them out. `messages` has the types of requests and
answers; `codec` validates requests by these types, and `openapi` describes them.
"""
