{{/* What every object is labelled with. Takes root and component. */}}
{{- define "spes.labels" -}}
{{- $root := .root -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: spes
{{ include "spes.selector" . }}
{{- end }}

{{/* By what pods are found: never changed, a Deployment could not be upgraded. */}}
{{- define "spes.selector" -}}
app.kubernetes.io/name: spes
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "spes.isHub" -}}
{{- if has .Values.mode (list "hub" "both") -}}yes{{- end -}}
{{- end }}

{{- define "spes.isMember" -}}
{{- if has .Values.mode (list "member" "both") -}}yes{{- end -}}
{{- end }}

{{/* The hub's namespace, fixed: the admission policies name the account in it. */}}
{{- define "spes.hubNamespace" -}}
{{- if ne .Release.Namespace "spes-system" -}}
{{- fail (printf "mode %s is installed into namespace spes-system (got %s); give --namespace spes-system --create-namespace" .Values.mode .Release.Namespace) -}}
{{- end -}}
spes-system
{{- end }}

{{/* Agent and trainers never share a namespace with the hub: the agent reads its Secrets. */}}
{{- define "spes.memberNamespace" -}}
{{- $default := ternary "spes" .Release.Namespace (eq .Values.mode "both") -}}
{{- $namespace := default $default .Values.member.namespace -}}
{{- if eq $namespace "spes-system" -}}
{{- fail "member.namespace must not be spes-system, where the hub's secrets are; choose another, for example spes" -}}
{{- end -}}
{{- $namespace -}}
{{- end }}

{{/* An image's full name. Takes root and image. */}}
{{- define "spes.image" -}}
{{- with .image -}}
{{- if .digest -}}
{{- .repository }}@{{ .digest -}}
{{- else -}}
{{- .repository }}:{{ default $.root.Chart.AppVersion .tag -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The objects of a plain file, labelled. Takes root, component and file. */}}
{{- define "spes.rights" -}}
{{- $labels := include "spes.labels" . | fromYaml -}}
{{- range regexSplit "(?m)^---$" (.root.Files.Get .file) -1 }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/* A binding of a ClusterRole. Takes root, component, role, account and accountNamespace; in namespace, or everywhere. */}}
{{- define "spes.binding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ .role }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "spes.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .role }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .accountNamespace }}
{{- end }}
