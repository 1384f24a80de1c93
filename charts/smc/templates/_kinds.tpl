{{- /* What follows from the kinds. `make generate` writes it. */ -}}
{{- define "smc.kinds.read" -}}
- apiGroups: [access.smi-spec.io]
  resources: [traffictargets]
  verbs: [list, watch]
- apiGroups: [config.openservicemesh.io]
  resources: [extensionservices]
  verbs: [list, watch]
- apiGroups: [mesh.smc.dev]
  resources: [meshworkloads]
  verbs: [list, watch]
- apiGroups: [policy.openservicemesh.io]
  resources: [ingressbackends, egresses, retries, upstreamtrafficsettings, telemetries]
  verbs: [list, watch]
- apiGroups: [specs.smi-spec.io]
  resources: [httproutegroups, tcproutes, udproutes]
  verbs: [list, watch]
- apiGroups: [split.smi-spec.io]
  resources: [trafficsplits]
  verbs: [list, watch]
{{- end }}
{{- define "smc.kinds.status" -}}
- apiGroups: [access.smi-spec.io]
  resources: [traffictargets/status]
  verbs: [patch]
- apiGroups: [config.openservicemesh.io]
  resources: [extensionservices/status]
  verbs: [patch]
- apiGroups: [mesh.smc.dev]
  resources: [meshworkloads/status]
  verbs: [patch]
- apiGroups: [policy.openservicemesh.io]
  resources: [ingressbackends/status, egresses/status, retries/status, upstreamtrafficsettings/status, telemetries/status]
  verbs: [patch]
- apiGroups: [specs.smi-spec.io]
  resources: [httproutegroups/status, tcproutes/status, udproutes/status]
  verbs: [patch]
- apiGroups: [split.smi-spec.io]
  resources: [trafficsplits/status]
  verbs: [patch]
{{- end }}
{{- define "smc.kinds.own.read" -}}
- apiGroups: [config.openservicemesh.io]
  resources: [meshconfigs, meshrootcertificates]
  verbs: [list, watch]
{{- end }}
{{- define "smc.kinds.own.status" -}}
- apiGroups: [config.openservicemesh.io]
  resources: [meshconfigs/status, meshrootcertificates/status]
  verbs: [patch]
{{- end }}
{{- define "smc.kinds.groups" -}}
- access.smi-spec.io
- config.openservicemesh.io
- mesh.smc.dev
- policy.openservicemesh.io
- specs.smi-spec.io
- split.smi-spec.io
{{- end }}
