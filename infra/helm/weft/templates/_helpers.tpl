{{/* Labels of every object. */}}
{{- define "weft.labels" -}}
app.kubernetes.io/part-of: weft
{{ include "weft.release" . }}
{{- end }}
{{- define "weft.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels that select the pods of a role: (role). */}}
{{- define "weft.selector" -}}
app.kubernetes.io/name: weft-{{ .role }}
app.kubernetes.io/part-of: weft
{{- end }}

{{/* The image. */}}
{{- define "weft.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* True where Redis is not the node's own. */}}
{{- define "weft.central" -}}
{{- if ne .Values.redis.mode "perNode" }}true{{ end }}
{{- end }}

{{/* The account of a role: (root role). Istio trusts one account with the identities of a node. */}}
{{- define "weft.account" -}}
{{- $node := list "cert-fetcher" "xds-ingester" "node-proxy" -}}
{{- $cluster := list "control-plane" "ca" "uninstall" -}}
{{- if and .root.Values.replaceZtunnel.enabled (has .role $node) -}} ztunnel
{{- else if and (eq .root.Values.profile "compact") (not (has .role $cluster)) -}} weft-node-agent
{{- else -}} weft-{{ .role }}
{{- end -}}
{{- end }}

{{/* Metadata of a pod: (root role port component). The mesh never enrols Weft's own pods. */}}
{{- define "weft.podMetadata" -}}
labels:
  {{- include "weft.selector" . | nindent 2 }}
  {{- with .component }}
  # The control plane learns from it that the pod runs all roles of its node.
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- include "weft.release" .root | nindent 2 }}
  istio.io/dataplane-mode: none
  sidecar.istio.io/inject: 'false'
  {{- if .root.Values.replaceZtunnel.enabled }}
  app: {{ eq .role "node-proxy" | ternary "ztunnel" (printf "weft-%s" .role) }}
  {{- end }}
{{- if and .root.Values.prometheus.scrape .port }}
annotations:
  prometheus.io/scrape: 'true'
  prometheus.io/port: {{ .port | quote }}
  prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Fields of every pod: (root role api priority). `api` is true for a role that calls the API server. */}}
{{- define "weft.pod" -}}
serviceAccountName: {{ include "weft.account" . }}
automountServiceAccountToken: {{ .api | default false }}
enableServiceLinks: false
priorityClassName: {{ .priority }}
nodeSelector:
  kubernetes.io/os: linux
  {{- if eq .priority "system-node-critical" }}
  {{- with .root.Values.nodeSelector }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
tolerations:
  {{- if eq .priority "system-node-critical" }}
  - operator: Exists
  {{- else }}
  # The mesh never enrols it, and the taint goes only when the mesh works.
  - { key: cni.istio.io/not-ready, operator: Exists }
  {{- end }}
{{- end }}

{{/* Security of a pod that needs no rights on its node. */}}
{{- define "weft.plainPodSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1337
  runAsGroup: 1337
  fsGroup: 1337
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Security of a pod that enters the network namespaces of others: root with the capabilities its container names. */}}
{{- define "weft.nodePodSecurity" -}}
securityContext:
  runAsUser: 0
  runAsGroup: 1337
  fsGroup: 1337
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{/* Security of a container: (add). */}}
{{- define "weft.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    {{- with .add }}
    add: [{{ join ", " . }}]
    {{- end }}
{{- end }}

{{/* Image and arguments of a role: (root role). */}}
{{- define "weft.program" -}}
image: {{ include "weft.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [run, {{ .role }}{{ if .root.Values.otlp.secret }}, --config, /etc/weft/otlp/settings.yaml{{ end }}]
{{- end }}

{{/* Variables of every role: (root settings). */}}
{{- define "weft.env" -}}
- name: NODE_NAME
  valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
- name: RUST_LOG
  value: {{ .root.Values.log.level | quote }}
- name: LOG_FORMAT
  value: {{ .root.Values.log.format }}
# A port forward reaches 127.0.0.1; the name would mean ::1 alone.
- name: WEFT_ADMIN_ADDRESS
  value: 127.0.0.1:15018
- name: WEFT_METRICS_ADDRESS
  value: ':15014'
{{- with .root.Values.otlp.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- range $name, $value := .root.Values.otlp.settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- range $name, $value := .settings }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}

{{- define "weft.namespaceEnv" -}}
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
{{- end }}

{{/* How a role reaches Redis: (root role perNode). The user of a role of a node is limited to that node. */}}
{{- define "weft.redisEnv" -}}
{{- if include "weft.central" .root }}
- name: REDIS_URL
  value: {{ eq .root.Values.redis.mode "shared" | ternary (printf "rediss://weft-redis.%s.svc:6379" .root.Release.Namespace) .root.Values.redis.url | quote }}
- name: REDIS_USERNAME
  value: {{ .role }}{{ if .perNode }}.$(NODE_NAME){{ end }}
- name: REDIS_PASSWORD_FILE
  value: /etc/weft/redis-user/password
{{- if .root.Values.redis.tlsSecret }}
- name: REDIS_CA_FILE
  value: /etc/weft/redis-roots/ca.crt
{{- end }}
{{- else }}
- name: REDIS_URL
  value: unix:///var/run/weft/redis/redis.sock
{{- end }}
{{- end }}

{{/* The files of Redis in a container: (root role perNode). A container sees the password of its own user alone. */}}
{{- define "weft.redisMounts" -}}
{{- if include "weft.central" .root }}
- name: redis-users
  mountPath: /etc/weft/redis-user/password
  subPathExpr: {{ .role }}{{ if .perNode }}.$(NODE_NAME){{ end }}
  readOnly: true
{{- if .root.Values.redis.tlsSecret }}
- name: redis-roots
  mountPath: /etc/weft/redis-roots
  readOnly: true
{{- end }}
{{- else }}
- name: redis
  mountPath: /var/run/weft/redis
  readOnly: true
{{- end }}
{{- end }}

{{- define "weft.redisVolumes" -}}
{{- if include "weft.central" . }}
- name: redis-users
  secret:
    secretName: {{ .Values.redis.usersSecret }}
    defaultMode: 0440
{{- if .Values.redis.tlsSecret }}
- name: redis-roots
  secret:
    secretName: {{ .Values.redis.tlsSecret }}
    items: [{ key: ca.crt, path: ca.crt }]
{{- end }}
{{- else }}
- name: redis
  hostPath: { path: /var/run/weft/redis, type: DirectoryOrCreate }
{{- end }}
{{- end }}

{{/* The mesh's roots, and a token for the mesh's servers. */}}
{{- define "weft.trustMounts" -}}
- name: roots
  mountPath: /var/run/secrets/istio
  readOnly: true
{{- end }}
{{- define "weft.trustVolumes" -}}
- name: roots
  configMap: { name: istio-ca-root-cert }
{{- end }}
{{- define "weft.tokenMounts" -}}
- name: token
  mountPath: /var/run/secrets/tokens
  readOnly: true
{{- end }}
{{- define "weft.tokenVolumes" -}}
- name: token
  projected:
    sources:
      - serviceAccountToken: { audience: istio-ca, expirationSeconds: 43200, path: istio-token }
{{- end }}

{{/* Scratch space, and the settings of OTLP where a Secret holds some. */}}
{{- define "weft.commonMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.otlp.secret }}
- name: otlp
  mountPath: /etc/weft/otlp
  readOnly: true
{{- end }}
{{- end }}
{{- define "weft.commonVolumes" -}}
- name: tmp
  emptyDir: {}
{{- with .Values.otlp.secret }}
- name: otlp
  secret: { secretName: {{ . }} }
{{- end }}
{{- end }}

{{/* Addresses of the mesh's servers. */}}
{{- define "weft.caAddress" -}}
{{- if .Values.replaceZtunnel.enabled }}{{ .Values.replaceZtunnel.istiod }}{{ else }}https://weft-ca.{{ .Release.Namespace }}.svc:15012{{ end }}
{{- end }}
{{- define "weft.xdsAddress" -}}
{{- if .Values.replaceZtunnel.enabled }}{{ .Values.replaceZtunnel.istiod }}{{ else }}https://weft-control-plane.{{ .Release.Namespace }}.svc:15012{{ end }}
{{- end }}
{{- define "weft.rootsEnv" -}}
- name: CA_ROOT_CA
  value: /var/run/secrets/istio/root-cert.pem
- name: CLUSTER_ID
  value: {{ .Values.clusterId | quote }}
{{- end }}
{{- define "weft.caEnv" -}}
{{ include "weft.rootsEnv" . }}
- name: CA_ADDRESS
  value: {{ include "weft.caAddress" . | quote }}
{{- end }}
{{- define "weft.tokenEnv" -}}
- name: AUTH_TOKEN
  value: /var/run/secrets/tokens/istio-token
{{- end }}

{{/* The control plane that a proxy's state comes from. */}}
{{- define "weft.sourceEnv" -}}
- name: WEFT_XDS_CONTROL_PLANE
  value: {{ .Values.replaceZtunnel.enabled | ternary "istio" "weft" }}
{{- end }}

{{/* Ports and readiness of a role that serves both at one port. */}}
{{- define "weft.metricsPort" -}}
ports:
  - { name: http-metrics, containerPort: 15014 }
readinessProbe:
  httpGet: { path: /healthz/ready, port: 15014 }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Spreads replicas over nodes: (role). */}}
{{- define "weft.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "weft.selector" . | nindent 8 }}
    # Pods of the version that is being replaced do not count.
    matchLabelKeys: [pod-template-hash]
{{- end }}
