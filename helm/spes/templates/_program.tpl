{{/*
The Deployment of one program with its account and budget. Takes root, component, namespace, config
(text), arguments (list) and settings (the program's section of the values); env, volumes and mounts
add to what both have.
*/}}
{{- define "spes.program" -}}
{{- $root := .root -}}
{{- $name := printf "spes-%s" .component -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "spes.labels" . | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "spes.labels" . | nindent 4 }}
data:
  config.yaml: |
    {{- .config | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "spes.labels" . | nindent 4 }}
spec:
  replicas: 1
  strategy:
    type: Recreate
  selector:
    matchLabels:
      {{- include "spes.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "spes.labels" . | nindent 8 }}
      annotations:
        spes.dev/config-sha256: {{ sha256sum .config }}
    spec:
      containers:
        - name: {{ .component }}
          command: [spes-operator, {{ .component }}]
          ports:
            - name: probes
              containerPort: 8080
            - name: metrics
              containerPort: 9090
          startupProbe:
            httpGet: {path: /healthz, port: probes}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /healthz, port: probes}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
          {{- include "spes.container" . | nindent 10 }}
      {{- include "spes.pod" . | nindent 6 }}
{{- if $root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "spes.labels" . | nindent 4 }}
spec:
  maxUnavailable: 0
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "spes.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/*
`helm test`: a pod that asks once what the program would ask, with its account and settings. Takes
what spes.program takes, and program, the sub-command.
*/}}
{{- define "spes.check" -}}
apiVersion: v1
kind: Pod
metadata:
  name: spes-{{ .component }}-check
  namespace: {{ .namespace }}
  labels:
    {{- include "spes.labels" (dict "root" .root "component" (printf "%s-check" .component)) | nindent 4 }}
  annotations:
    helm.sh/hook: test
    # It stays until the next one, so that `--logs` finds it.
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  restartPolicy: Never
  containers:
    - name: check
      command: [spes-operator, {{ .program }}]
      {{- include "spes.container" . | nindent 6 }}
  {{- include "spes.pod" . | nindent 2 }}
{{- end }}

{{/* What the pods of a program have besides their containers. */}}
{{- define "spes.pod" -}}
{{- $root := .root -}}
serviceAccountName: spes-{{ .component }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .settings.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: config
    configMap:
      name: spes-{{ .component }}
  - name: scratch
    emptyDir: {}
  {{- with $root.Values.extraCA.configMap }}
  - name: extra-ca
    configMap:
      name: {{ . }}
  {{- end }}
  {{- with .volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every container of a program has, whatever it runs. */}}
{{- define "spes.container" -}}
{{- $root := .root -}}
image: {{ include "spes.image" (dict "root" $root "image" $root.Values.images.operator) }}
imagePullPolicy: {{ $root.Values.images.pullPolicy }}
args:
  {{- toYaml (concat (list "--config=/etc/spes/config/config.yaml") (default list .arguments)) | nindent 2 }}
env:
  - name: HOME
    value: /tmp
  {{- include "spes.surroundings" $root | nindent 2 }}
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
resources:
  {{- toYaml .settings.resources | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: config
    mountPath: /etc/spes/config
    readOnly: true
  - name: scratch
    mountPath: /tmp
  {{- if $root.Values.extraCA.configMap }}
  - name: extra-ca
    mountPath: /etc/spes/ca
    readOnly: true
  {{- end }}
  {{- with .mounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Proxies and certificates of the institution. Its own API server is never behind the proxy. */}}
{{- define "spes.surroundings" -}}
{{- with .Values.proxy }}
{{- if or .http .https }}
{{- with .http }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with .https }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
{{- end }}
- name: NO_PROXY
  value: {{ compact (list "$(KUBERNETES_SERVICE_HOST)" ".svc" ".cluster.local" "localhost" "127.0.0.1" .noProxy) | join "," | quote }}
{{- end }}
{{- end }}
{{- with .Values.extraCA }}
{{- if .configMap }}
- name: SSL_CERT_FILE
  value: /etc/spes/ca/{{ .key }}
{{- end }}
{{- end }}
{{- end }}
