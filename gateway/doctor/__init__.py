"""`delta-gateway doctor`: what keeps a recipient from reading a share, and who can fix it.

In: a profile of any version and type. Out: findings of steps, from the file to the first bytes of a data
file. Any server of the protocol is examined, so answers are parsed tolerantly and reads are bounded. No
finding has a token, a secret, a signed URL or a storage path.
"""
