"""Errors of a configuration, each with its place."""


class ConfigError(ValueError):
    """Raised for a configuration that cannot be served.

    Attributes:
        place: `file:line` of the value, or the file alone.
        key: dotted path of the key, such as `gateway.storages[0].region`; empty for the file as a whole.

    """

    def __init__(self, place: str, key: str, message: str) -> None:
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")
        self.place = place
        self.key = key


class Invalid(ValueError):
    """Raised by a section about one of its own keys; the reader adds the place."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field
