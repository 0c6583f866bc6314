#!/bin/sh
# Runs a command of delta-gateway as the service: its user, its directories and its secrets.
#   delta-gateway-as-service recipient list -c /etc/delta-gateway/share.yaml
exec systemd-run --quiet --collect --pipe --wait \
    --property=DynamicUser=yes --property=User=delta-gateway \
    --property=StateDirectory=delta-gateway --property=StateDirectoryMode=0700 \
    --property=CacheDirectory=delta-gateway --property=CacheDirectoryMode=0700 \
    --property=LoadCredential=token-key:/etc/delta-gateway/token-key \
    --property=EnvironmentFile=-/etc/default/delta-gateway \
    --property=UMask=0077 \
    /usr/bin/delta-gateway "$@"
