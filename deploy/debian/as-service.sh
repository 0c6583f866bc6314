#!/bin/sh
# Runs a command of delta-gateway as the service: its user, its directories, its secrets and its variables.
#   delta-gateway-as-service recipient list -c /etc/delta-gateway/share.yaml
set -ef
set -- /usr/bin/delta-gateway "$@"
# Also those of drop-ins. `systemctl show` does not print credentials.
IFS='
'
for setting in $(systemctl cat delta-gateway.service |
    grep -E '^(Environment|EnvironmentFile|LoadCredential|LoadCredentialEncrypted)=' | tac); do
    set -- "--property=$setting" "$@"
done
exec systemd-run --quiet --collect --pipe --wait \
    --property=DynamicUser=yes --property=User=delta-gateway \
    --property=StateDirectory=delta-gateway --property=StateDirectoryMode=0700 \
    --property=CacheDirectory=delta-gateway --property=CacheDirectoryMode=0700 \
    --property=UMask=0077 \
    "$@"
