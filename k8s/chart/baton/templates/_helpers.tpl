{{- define "baton.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 48 | trimSuffix "-" -}}
{{- else if contains "baton" .Release.Name -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-baton" .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* (dict "root" . "part" "binder"): labels of all objects */ -}}
{{- define "baton.labels" -}}
{{ include "baton.selector" . }}
app.kubernetes.io/part-of: baton
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* the same, without what an upgrade changes */ -}}
{{- define "baton.selector" -}}
app.kubernetes.io/name: baton
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "baton.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Is there a batond beside those of the nodes? */ -}}
{{- define "baton.hasCentral" -}}
{{- if or (eq .Values.mode "central") .Values.central.enabled -}}true{{- end -}}
{{- end -}}

{{- /* Do the programs make their keys themselves? Otherwise the operator has. */ -}}
{{- define "baton.ownKeys" -}}
{{- if and (include "baton.hasCentral" .) (not (trim .Values.central.publicKey)) -}}true{{- end -}}
{{- end -}}

{{- /* A dict of sections as TOML. Values are JSON, whose texts, numbers and lists are TOML's too. */ -}}
{{- define "baton.toml" -}}
{{- range $section, $keys := . }}
[{{ $section }}]
{{- range $key, $value := $keys }}
{{- if not (kindIs "map" $value) }}
{{ $key | toJson }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range $key, $value := $keys }}
{{- if kindIs "map" $value }}
[{{ $section }}.{{ $key | toJson }}]
{{- range $name, $of := $value }}
{{ $name | toJson }} = {{ $of | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* [http] of a batond whose page others may reach */ -}}
{{- define "baton.http" -}}
listen: 0.0.0.0:7412
token_file: /etc/baton/http/token
certificate_file: /etc/baton/http/tls.crt
key_file: /etc/baton/http/tls.key
{{- end -}}

{{- /* batond.toml (or frontend.toml) of the nodes */ -}}
{{- define "baton.nodeConfig" -}}
{{- $server := dict "socket_dir" "/run/baton" "control_dir" "/run/baton-control" "state_dir" "/var/lib/baton" "lock_dir" "/run/baton-locks" -}}
{{- $set := dict "server" $server -}}
{{- $own := dict -}}
{{- if eq .Values.mode "federated" -}}
{{- $own = .Values.batond -}}
{{- $_ := set $server "local_gpus" "yes" -}}
{{- if .Values.teams }}{{ $_ := set $set "teams" (dict "file" "/etc/baton/teams.toml") }}{{ end -}}
{{- if .Values.killHungHolders }}{{ $_ := set $set "scheduler" (dict "drain_action" "kill") }}{{ end -}}
{{- if .Values.monitoring.secret }}{{ $_ := set $set "http" (include "baton.http" . | fromYaml) }}{{ end -}}
{{- if .Values.flavors }}{{ $_ := set $set "flavors" .Values.flavors }}{{ end -}}
{{- if .Values.migTemplates }}{{ $_ := set $set "placement" (dict "mig_templates" "/etc/baton/mig.toml") }}{{ end -}}
{{- end -}}
{{- if include "baton.hasCentral" . -}}
{{- $at := printf "tcp://%s-central.%s.svc:7411" (include "baton.fullname" .) .Release.Namespace -}}
{{- $link := dict "connect" $at "server_public_key" (trim .Values.central.publicKey) -}}
{{- $zmq := dict "secret_key_file" "/etc/baton/node.key" -}}
{{- if include "baton.ownKeys" . -}}
{{- $link = dict "connect" $at "server_public_key_file" "/var/lib/baton/keys/central.pub" -}}
{{- $zmq = dict "secret_key_file" "/var/lib/baton/keys/node.key" -}}
{{- end -}}
{{- if eq .Values.mode "central" -}}
{{- $_ := set $set "zmq" (merge $zmq $link) -}}
{{- else -}}
{{- $_ := set $set "zmq" $zmq -}}
{{- $_ := set $set "upstream" $link -}}
{{- end -}}
{{- end -}}
{{- include "baton.toml" (mergeOverwrite (deepCopy $own) $set) -}}
{{- end -}}

{{- /* batond.toml of the central one */ -}}
{{- define "baton.centralConfig" -}}
{{- $central := eq .Values.mode "central" -}}
{{- $own := ternary .Values.batond .Values.central.batond $central -}}
{{- $set := dict
      "server" (dict "socket_dir" "/run/baton" "state_dir" "/var/lib/baton" "lock_dir" "/run/baton/lock" "local_gpus" "no")
      "zmq" (dict "listen" "tcp://0.0.0.0:7411" "secret_key_file" "/run/baton-keys/central.key" "nodes" .Values.central.nodes) -}}
{{- if include "baton.ownKeys" . }}{{ $_ := set $set.zmq "nodes_file" "/var/lib/baton/nodes" }}{{ end -}}
{{- if .Values.teams }}{{ $_ := set $set "teams" (dict "file" "/etc/baton/teams.toml") }}{{ end -}}
{{- if and $central .Values.flavors }}{{ $_ := set $set "flavors" .Values.flavors }}{{ end -}}
{{- if and $central .Values.killHungHolders }}{{ $_ := set $set "scheduler" (dict "drain_action" "kill") }}{{ end -}}
{{- if .Values.monitoring.secret }}
{{- $http := include "baton.http" . | fromYaml -}}
{{- $_ := set $http "token_file" "/run/baton-keys/token" -}}
{{- $_ := set $http "key_file" "/run/baton-keys/tls.key" -}}
{{- $_ := set $set "http" $http -}}
{{- end -}}
{{- include "baton.toml" (mergeOverwrite (deepCopy $own) $set) -}}
{{- end -}}

{{- /* Of every program that writes a log. */}}
{{- define "baton.logArgs" -}}
{{- if ne .Values.logFormat "text" -}}
- --log-format={{ .Values.logFormat }}
{{- end }}
{{- end }}

{{- /* What no program of Baton needs: more than it was given. */ -}}
{{- define "baton.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
{{- /* What batond may do on a node, as the entries of a list. */ -}}
{{- define "baton.nodeCapabilities" -}}
{{- $all := list -}}
{{- if .Values.killHungHolders }}{{ $all = append $all "KILL" }}{{ end -}}
{{- if .Values.node.mig }}{{ $all = append $all "SYS_ADMIN" }}{{ end -}}
{{- join ", " $all -}}
{{- end -}}
{{- define "baton.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* (dict "root" . "part" "binder" "of" .Values.binder): the replicas on different nodes, if possible;
with "together" true on one node, where their volume is */ -}}
{{- define "baton.spread" -}}
{{- if .together -}}
affinity:
  podAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "baton.selector" . | nindent 14 }}
{{- else -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "baton.selector" . | nindent 8 }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .of.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Does the webhook look at namespaces, pods and quotas? */ -}}
{{- define "baton.webhookFacts" -}}
{{- if or .Values.tenancy.restrict .Values.tenancy.teams .Values.tenancy.quotas (include "baton.podGroups" .) -}}true{{- end -}}
{{- end -}}

{{- /* The API groups whose PodGroups the webhook reads, as JSON; empty: none. */ -}}
{{- define "baton.podGroups" -}}
{{- with .Values.webhook.batchSchedulers }}
{{- $groups := list }}
{{- if .volcano }}{{ $groups = append $groups "scheduling.volcano.sh" }}{{ end }}
{{- if .coscheduling }}{{ $groups = append $groups "scheduling.x-k8s.io" }}{{ end }}
{{- if $groups }}{{ toJson $groups }}{{ end }}
{{- end }}
{{- end -}}

{{- /* What pods with GPUs are given, the same for binder and webhook */ -}}
{{- define "baton.podArgs" -}}
{{- if .Values.pods.chooseMode }}
- --choose-mode
{{- end }}
{{- if and .Values.pods.addRuntimeClass .Values.node.runtimeClassName }}
- --runtime-class={{ .Values.node.runtimeClassName }}
{{- end }}
{{- range .Values.pods.tolerate }}
- --tolerate={{ . }}
{{- end }}
{{- range $name, $flavor := .Values.flavors }}
{{- $said := list }}
{{- range $key, $value := $flavor }}{{ $said = append $said (printf "%s=%v" $key $value) }}{{ end }}
- {{ printf "--flavor=%s=%s" $name (join "," $said) | quote }}
{{- end }}
{{- end -}}

{{- define "baton.webhookCommon" -}}
admissionReviewVersions: [v1]
sideEffects: None
timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}
failurePolicy: {{ .Values.webhook.failurePolicy }}
matchPolicy: Equivalent
# The webhook must not wait for itself, and the control plane not for Baton.
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values:
        - {{ .Release.Namespace }}
        - kube-system
        {{- range .Values.webhook.excludedNamespaces }}
        - {{ . }}
        {{- end }}
{{- end -}}

{{- define "baton.webhookClient" -}}
clientConfig:
  service: {name: {{ include "baton.fullname" .root }}-webhook, namespace: {{ .root.Release.Namespace }}, port: 443, path: {{ .path }}}
  {{- with .root.Values.webhook.caBundle }}
  caBundle: {{ . }}
  {{- end }}
{{- end -}}

{{- /* Resources of other projects that a pod may ask by (k8s/types/foreign_names.cc), in CEL. */ -}}
{{- define "baton.foreignResources" -}}
{{- with .Values.webhook.foreignNames }}
{{- $names := list }}
{{- if .hami }}{{ $names = concat $names (list "nvidia.com/gpu" "nvidia.com/gpumem" "nvidia.com/gpumem-percentage" "nvidia.com/gpucores") }}{{ end }}
{{- if .volcano }}{{ $names = concat $names (list "volcano.sh/vgpu-number" "volcano.sh/vgpu-memory" "volcano.sh/vgpu-memory-percentage" "volcano.sh/vgpu-cores") }}{{ end }}
{{- if .timeSlicingReplicas }}{{ $names = append $names "nvidia.com/gpu.shared" }}{{ end }}
{{- if $names }} || r in {{ toJson $names }}{{ end }}
{{- end }}
{{- end -}}

{{- /* Which pods reach the webhook: those that ask for GPUs. Nobody else's wait for it. */ -}}
{{- define "baton.podConditions" -}}
- name: asks-for-gpus
  expression: >-
    (has(object.spec.schedulerName) && object.spec.schedulerName == "baton") ||
    object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) &&
    c.resources.limits.exists(r, r.startsWith("baton.dev/"){{ if or .Values.webhook.wholeCards .Values.node.wholeCards }} || r == "nvidia.com/gpu"{{ end }}{{ include "baton.foreignResources" . }})) ||
    (has(object.spec.initContainers) && object.spec.initContainers.exists(c, has(c.resources) && has(c.resources.limits) &&
    c.resources.limits.exists(r, r.startsWith("baton.dev/"){{ if or .Values.webhook.wholeCards .Values.node.wholeCards }} || r == "nvidia.com/gpu"{{ end }}{{ include "baton.foreignResources" . }}))) ||
    (has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith("baton.dev/") || k.contains(".container.baton.dev/"){{ with .Values.webhook.foreignNames }}{{ if .kai }} || k in ["gpu-fraction","gpu-memory"] || k.startsWith("nvidia.com/container."){{ end }}{{ end }}))
# The binder's own words are checked already, and it goes on while the webhook is away.
- name: not-by-the-binder
  expression: request.userInfo.username != "system:serviceaccount:{{ .Release.Namespace }}:{{ include "baton.fullname" . }}-binder"
{{- end -}}

{{- define "baton.egressToApi" -}}
# The API server, and names.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
- ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end -}}
