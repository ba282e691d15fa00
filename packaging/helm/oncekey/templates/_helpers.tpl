{{/* The name of everything: that of the release, with the chart's unless it holds it already. */}}
{{- define "oncekey.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "oncekey.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oncekey.labels" -}}
{{ include "oncekey.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Others than the pod reach the admin listener. */}}
{{- define "oncekey.adminIsOpen" -}}
{{- if not (hasPrefix "127." .Values.admin) }}yes{{ end -}}
{{- end }}

{{/* Operators send a token: the Secret's. */}}
{{- define "oncekey.hasToken" -}}
{{- if or (ne .Values.store.kind "embedded") (include "oncekey.adminIsOpen" .) }}yes{{ end -}}
{{- end }}
