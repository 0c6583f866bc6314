"""Keys of objects that signers are compared by."""

from hypothesis import strategies as st

ODD_KEYS = (
    "p=a%20b/x",
    "p=a b/x",
    "p=é/x",
    "x+y",
    "q!'()*@$&,;:~",
    "%41",
    'a?b#c"<>{}`|\\^[]',
    "\x7f\x01",
    "a//b",
)
keys = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60).filter(
    # boto3 itself takes one slash away, and dot segments are no keys of a table's files.
    lambda key: not key.startswith("/") and not {".", ".."} & set(key.split("/"))
)
