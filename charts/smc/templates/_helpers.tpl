{{/* The labels of every object. */}}
{{- define "smc.labels" -}}
app.kubernetes.io/name: smc
app.kubernetes.io/instance: {{ .Values.meshName }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: smc
{{- end -}}

{{/* The labels that select the controllers; they cannot be changed. */}}
{{- define "smc.selector" -}}
app.kubernetes.io/name: smc
app.kubernetes.io/instance: {{ .Values.meshName }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* The image of the controller and of the init container of sidecars. */}}
{{- define "smc.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Which namespaces the webhooks look at. */}}
{{- define "smc.namespaceSelector" -}}
matchExpressions:
  - key: openservicemesh.io/monitored-by
    operator: In
    values: [{{ .Values.meshName | quote }}]
  - key: openservicemesh.io/ignore
    operator: DoesNotExist
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      - kube-system
      - {{ .Release.Namespace }}
      {{- range .Values.webhooks.excludedNamespaces }}
      - {{ . }}
      {{- end }}
{{- end -}}

{{/* The security context of every container here: the restricted Pod Security Standard. */}}
{{- define "smc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}
