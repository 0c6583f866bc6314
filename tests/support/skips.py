"""Reasons of skips that no toolchain mends. With OTHER_MACHINE a sentence begins that says which one."""

OTHER_MACHINE = "needs another machine:"
NOTHING_RELEASED = "no release is tagged"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_ABSENT = f"there is no browser on PATH ({', '.join(BROWSERS)}); Debian: apt-get install chromium"
