{{- define "gateway.name" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gateway.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gateway.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "gateway.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "gateway.claim" -}}
{{ .Values.database.existingClaim | default (printf "%s-recipients" (include "gateway.name" .)) }}
{{- end }}

{{- /* The bytes of a quantity such as 512Mi. */ -}}
{{- define "gateway.bytes" -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "" 1 }}
{{- $number := regexFind "^[0-9]+" (toString .) }}
{{- $unit := trimPrefix $number (toString .) }}
{{- if or (eq $number "") (not (hasKey $units $unit)) }}{{ fail (printf "'%v' is not a size; accepted: whole numbers with Ki, Mi, Gi, Ti, k, M, G or T" .) }}{{ end }}
{{- mul (int64 $number) (get $units $unit) }}
{{- end }}

{{- /*
The file of a token key below its mount. Files have the names of their secrets, and no numbers: running pods reload
a configuration with another order before new pods have its mounts.
*/ -}}
{{- define "gateway.tokenKey" -}}
{{ .existingSecret }}/{{ .key | default "token-key" }}
{{- end }}

{{- /* The secrets of storages, each once, as a list of JSON. */ -}}
{{- define "gateway.storageSecrets" -}}
{{- $names := list }}
{{- range .Values.storages }}{{ if .existingSecret }}{{ $names = append $names .existingSecret }}{{ end }}{{ end }}
{{- uniq $names | toJson }}
{{- end }}

{{- /* The configuration: the values' own, and what the chart knows of the pod. */ -}}
{{- define "gateway.configuration" -}}
{{- $cache := dict }}
{{- with .Values.cache.memory }}{{ $_ := set $cache "memoryBytes" (include "gateway.bytes" . | int64) }}{{ end }}
{{- if .Values.cache.directory.enabled }}
{{- $disk := include "gateway.bytes" .Values.cache.directory.size | int64 }}
{{- $_ := set $cache "directory" "${CACHE_DIRECTORY}/columns" }}
{{- $_ := set $cache "diskBytes" (div (mul $disk 9) 10) }}
{{- end }}
{{- /* A service stops sending connections to a pod some seconds after the pod begins to end. */ -}}
{{- $gateway := dict "cache" $cache "drainDelaySeconds" 5 }}
{{- if .Values.database.enabled }}{{ $_ := set $gateway "recipientsDatabase" "${STATE_DIRECTORY}/recipients.db" }}{{ end }}
{{- $base := dict "version" 1 "host" "0.0.0.0" "port" 8080 "gateway" $gateway }}
{{- if .Values.tls.existingSecret }}
{{- $_ := set $base "ssl" (dict "certificateFile" "/run/secrets/tls/tls.crt" "certificateKeyFile" "/run/secrets/tls/tls.key") }}
{{- end }}
{{- if .Values.admin.existingSecret }}
{{- $admin := dict "host" "0.0.0.0" "port" 8081 "tokenSha256" "${ADMIN_TOKEN_SHA256}" }}
{{- if .Values.admin.metricsExistingSecret }}{{ $_ := set $admin "metricsTokenSha256" "${METRICS_TOKEN_SHA256}" }}{{ end }}
{{- if .Values.tls.existingSecret }}{{ $_ := set $admin "ssl" $base.ssl }}{{ end }}
{{- $_ := set $gateway "admin" $admin }}
{{- end }}
{{- $config := mustMergeOverwrite $base (deepCopy .Values.config) }}
{{- $keys := list }}
{{- range $key := .Values.tokenKeys }}
{{- $keys = append $keys (dict "id" $key.id "secretFile" (printf "${CREDENTIALS_DIRECTORY}/token-keys/%s" (include "gateway.tokenKey" $key))) }}
{{- end }}
{{- if $keys }}{{ $_ := set $config.gateway "tokenKeys" $keys }}{{ end }}
{{- $storages := list }}
{{- range $storage := .Values.storages }}
{{- $entry := omit $storage "existingSecret" "credential" "sessionToken" }}
{{- if $storage.existingSecret }}
{{- $directory := printf "${CREDENTIALS_DIRECTORY}/storages/%s" $storage.existingSecret }}
{{- $credential := $storage.credential | default "accessKey" }}
{{- if eq $credential "accessKey" }}
{{- $_ := set $entry "accessKeyIdFile" (printf "%s/access-key-id" $directory) }}
{{- $_ := set $entry "secretAccessKeyFile" (printf "%s/secret-access-key" $directory) }}
{{- if $storage.sessionToken }}{{ $_ := set $entry "sessionTokenFile" (printf "%s/session-token" $directory) }}{{ end }}
{{- else if eq $credential "credentialsFile" }}
{{- $_ := set $entry "credentialsFile" (printf "%s/credentials.json" $directory) }}
{{- else }}
{{- $_ := set $entry (printf "%sFile" $credential) (printf "%s/%s" $directory (kebabcase $credential)) }}
{{- end }}
{{- end }}
{{- $storages = append $storages $entry }}
{{- end }}
{{- if $storages }}{{ $_ := set $config.gateway "storages" (concat $storages ($config.gateway.storages | default list)) }}{{ end }}
{{- toYaml $config }}
{{- end }}

{{- /* The ports beside 443 of the database and of the URLs that the server requests, as a list of JSON. */ -}}
{{- define "gateway.ports" -}}
{{- $gateway := (include "gateway.configuration" . | fromYaml).gateway }}
{{- $hidden := list }}
{{- $ports := list }}
{{- $database := $gateway.database | default dict }}
{{- if kindIs "string" $database }}{{ $database = dict "url" $database }}{{ end }}
{{- $url := $database.url | default "" }}
{{- if or $database.urlFile (contains "${" $url) }}
{{- $hidden = append $hidden "gateway.database" }}
{{- else if regexMatch "^postgres" $url }}
{{- $place := regexFind "://[^?]*" $url | trimPrefix "://" }}
{{- $option := regexFind "[?&]port=[0-9,]+" $url | regexFind "[0-9,]+$" }}
{{- $hosts := ternary (splitList "," $option) (splitList "," (regexReplaceAll "^[^/]*@" (regexFind "^[^/]*" $place) "")) (ne $option "") }}
{{- range $hosts }}{{ $ports = append $ports (regexFind "[0-9]+$" (ternary (printf ":%s" .) (regexFind ":[0-9]+$" .) (ne $option "")) | default "5432" | int) }}{{ end }}
{{- end }}
{{- $requested := dict "storages" $gateway.storages "oidc" $gateway.oidc "tracing" $gateway.tracing }}
{{- $_ := set $requested "console" (dig "oidc" "issuer" "" ($gateway.admin | default dict)) }}
{{- $_ := set $requested "catalogs" (regexFindAll `"url":"[^"]+"` (toJson .Values.config.shares) -1) }}
{{- range regexFindAll `https?://[^/?"\\]+` (toJson $requested) -1 }}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default (ternary "80" "443" (hasPrefix "http:" .)) | int }}
{{- if ne $port 443 }}{{ $ports = append $ports $port }}{{ end }}
{{- end }}
{{- range $gateway.storages }}
{{- if contains "${" (toString .endpoint) }}{{ $hidden = append $hidden (printf "the endpoint of %s" .prefix) }}{{ end }}
{{- end }}
{{- if and $hidden (not .Values.networkPolicy.egress) }}
{{- fail (printf "networkPolicy.enabled: the port of %s is in a secret, so networkPolicy.egress has to name it, such as {ports: [{port: 5432, protocol: TCP}]}" (first $hidden)) }}
{{- end }}
{{- uniq $ports | toJson }}
{{- end }}

{{- /* The keys of the configuration that a reload refuses: a change of one needs new pods. */ -}}
{{- define "gateway.fixed" -}}
{{- $config := include "gateway.configuration" . | fromYaml }}
{{- $gateway := pick $config.gateway "endpointAliases" "database" "recipientsDatabase" "cache" "audit" "admin" "tracing" }}
{{- if kindIs "map" $gateway.database }}{{ $_ := set $gateway "database" (omit $gateway.database "password" "maxOutageSeconds") }}{{ end }}
{{- if $gateway.admin }}{{ $_ := set $gateway "admin" (omit $gateway.admin "oidc") }}{{ end }}
{{- toYaml (dict "server" (pick $config "ssl" "host" "port" "endpoint") "gateway" $gateway) }}
{{- end }}

{{- /* Fails for values that would not work, with the reason. */ -}}
{{- define "gateway.check" -}}
{{- $config := include "gateway.configuration" . | fromYaml }}
{{- $several := or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) }}
{{- $database := $config.gateway.database | default "" }}
{{- $url := ternary $database (dig "url" "" (ternary (dict) $database (kindIs "string" $database))) (kindIs "string" $database) }}
{{- if and $several (or .Values.database.enabled (hasPrefix "sqlite:" $url) (and $config.gateway.recipientsDatabase (not $database))) }}
{{- fail "several replicas cannot share the recipients' database: SQLite has one writer, and a ReadWriteOnce volume one node. Set replicas: 1 and autoscaling.enabled: false, or database.enabled: false without config.gateway.recipientsDatabase, and keep the recipients in PostgreSQL, by config.gateway.database, or in config.gateway.recipients" }}
{{- end }}
{{- if and $several (not $config.gateway.tokenKeys) }}
{{- fail "several replicas need common tokenKeys: without them each pod makes its own key and refuses the page tokens and file URLs of the others" }}
{{- end }}
{{- $drain := addf 5 (ternary 30 $config.gateway.drainSeconds (kindIs "invalid" $config.gateway.drainSeconds)) }}
{{- if le (float64 .Values.terminationGracePeriodSeconds) $drain }}
{{- fail (printf "terminationGracePeriodSeconds: %v is not more than the %v s that config.gateway.drainSeconds and the end of workers take: streams would be cut" .Values.terminationGracePeriodSeconds $drain) }}
{{- end }}
{{- if and $config.gateway.admin (not .Values.admin.existingSecret) }}
{{- fail "config.gateway.admin needs admin.existingSecret, which switches on the admin API" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (or (not .Values.admin.existingSecret) (not .Values.admin.metricsExistingSecret)) }}
{{- fail "serviceMonitor.enabled needs admin.existingSecret, which switches on the metrics, and admin.metricsExistingSecret, by which Prometheus reads them" }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) }}{{ fail "ingress.enabled needs ingress.hosts" }}{{ end }}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) }}{{ fail "httpRoute.enabled needs httpRoute.parentRefs" }}{{ end }}
{{- end }}
