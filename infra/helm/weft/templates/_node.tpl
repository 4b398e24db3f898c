{{/* Variables of the node agent. */}}
{{- define "weft.agentEnv" -}}
- name: WEFT_SOURCE
  value: kubernetes
- name: WEFT_NODE_AGENT_PROC_DIR
  value: /host/proc
- name: WEFT_NODE_AGENT_CNI
  value: 'true'
- name: WEFT_NODE_AGENT_HOST_ROOT
  value: /host
- name: WEFT_NODE_AGENT_CNI_BIN_DIR
  value: {{ .Values.nodeAgent.cniBinDir }}
- name: MOUNTED_CNI_NET_DIR
  value: /host{{ .Values.nodeAgent.cniNetDir }}
{{- with .Values.nodeAgent.runtimeSocket }}
- name: CONTAINER_RUNTIME_ENDPOINT
  value: unix:///host{{ . }}
{{- end }}
{{- end }}

{{- define "weft.agentMounts" -}}
- { name: zds, mountPath: /var/run/ztunnel }
# The plugin's socket and kubeconfig, at the same path on the node.
- { name: cni-run, mountPath: /var/run/istio-cni }
- { name: cni-bin, mountPath: /host{{ .Values.nodeAgent.cniBinDir }} }
- { name: cni-net, mountPath: /host{{ .Values.nodeAgent.cniNetDir }} }
# Processes lead to the namespaces of running pods; settings of networks are written to sys/net.
- { name: proc, mountPath: /host/proc }
# The namespaces of starting pods, which the runtime mounts later.
- { name: netns, mountPath: /host/var/run/netns, mountPropagation: HostToContainer }
# An agent that leaves the node for good removes Redis' files.
- { name: state, mountPath: /host/var/lib/weft }
# Shared with the node's other writers of iptables rules.
- { name: xtables-lock, mountPath: /run/xtables.lock }
{{- with .Values.nodeAgent.runtimeSocket }}
# Its folder: a runtime that starts anew makes another socket.
- { name: runtime, mountPath: /host{{ dir . }}, readOnly: true }
{{- end }}
{{- end }}

{{- define "weft.agentVolumes" -}}
- name: cni-run
  hostPath: { path: /var/run/istio-cni, type: DirectoryOrCreate }
- name: cni-bin
  hostPath: { path: {{ .Values.nodeAgent.cniBinDir }}, type: DirectoryOrCreate }
- name: cni-net
  hostPath: { path: {{ .Values.nodeAgent.cniNetDir }}, type: DirectoryOrCreate }
- name: proc
  hostPath: { path: /proc, type: Directory }
- name: netns
  hostPath: { path: /var/run/netns, type: DirectoryOrCreate }
- name: state
  hostPath: { path: /var/lib/weft, type: DirectoryOrCreate }
- name: xtables-lock
  hostPath: { path: /run/xtables.lock, type: FileOrCreate }
{{- with .Values.nodeAgent.runtimeSocket }}
- name: runtime
  hostPath: { path: {{ dir . }}, type: Directory }
{{- end }}
{{- end }}

{{/* Variables of the node proxy: (root drain). */}}
{{- define "weft.proxyEnv" -}}
- name: CLUSTER_DOMAIN
  value: {{ .root.Values.clusterDomain | quote }}
- name: CONNECTION_TERMINATION_DEADLINE
  value: {{ .drain }}s
{{- end }}

{{/* Ports and readiness of the node proxy. */}}
{{- define "weft.proxyPorts" -}}
ports:
  - { name: http-metrics, containerPort: 15020 }
readinessProbe:
  httpGet: { path: /healthz/ready, port: 15021 }
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "weft.zdsEnv" -}}
- name: INPOD_UDS
  value: /var/run/ztunnel/ztunnel.sock
{{- end }}
{{- define "weft.zdsVolume" -}}
- name: zds
  hostPath: { path: /var/run/ztunnel, type: DirectoryOrCreate }
{{- end }}

{{/* The name under which the ingester asks for the mesh. */}}
{{- define "weft.xdsEnv" -}}
- name: XDS_ADDRESS
  value: {{ include "weft.xdsAddress" . | quote }}
- name: XDS_ROOT_CA
  value: /var/run/secrets/istio/root-cert.pem
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: INSTANCE_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
{{- end }}

{{/* Metadata of a DaemonSet or a Deployment: (root role). */}}
{{- define "weft.workload" -}}
metadata:
  name: weft-{{ .role }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "weft.labels" .root | nindent 4 }}
{{- end }}

{{/* The account of a role without rights of its own: (root role). */}}
{{- define "weft.bareAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "weft.account" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "weft.labels" .root | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{/* The Redis container with its configuration, and what prepares its folders. */}}
{{- define "weft.redisContainer" -}}
- name: redis
  image: {{ include "weft.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  # The lock keeps a second server out of the folder until the first one has ended.
  command: [flock, --no-fork, /var/lib/weft/redis/lock, sh, /opt/weft/infra/redis/serve.sh, /var/lib/weft/redis, /etc/weft/redis/redis.conf]
  {{- include "weft.containerSecurity" (dict "add" (list)) | nindent 2 }}
    runAsNonRoot: true
    runAsUser: 1337
    runAsGroup: 1337
  readinessProbe:
    exec:
      command: [redis-cli, -e, -s, /var/run/weft/redis/redis.sock, ping]
    periodSeconds: 10
    timeoutSeconds: 5
  resources:
    {{- toYaml .Values.redis.resources | nindent 4 }}
  volumeMounts:
    - { name: redis-config, mountPath: /etc/weft/redis, readOnly: true }
    - { name: redis, mountPath: /var/run/weft/redis }
    - { name: redis-data, mountPath: /var/lib/weft/redis }
{{- end }}

{{- define "weft.redisPrepare" -}}
# Kubelet makes the folders for root.
- name: folders
  image: {{ include "weft.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [install, -d, -o, '1337', -g, '1337', -m, '0750', /var/run/weft/redis, /var/lib/weft/redis]
  {{- include "weft.containerSecurity" (dict "add" (list "CHOWN" "FOWNER")) | nindent 2 }}
    runAsNonRoot: false
    runAsUser: 0
  volumeMounts:
    - { name: redis, mountPath: /var/run/weft/redis }
    - { name: redis-data, mountPath: /var/lib/weft/redis }
{{- end }}

{{- define "weft.redisServerVolumes" -}}
- name: redis-config
  configMap: { name: weft-redis }
- name: redis-data
  hostPath: { path: /var/lib/weft/redis, type: DirectoryOrCreate }
{{- end }}
