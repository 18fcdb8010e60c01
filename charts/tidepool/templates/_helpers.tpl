{{/* Labels that select the pods of a component: (list . "agent"). They never change. */}}
{{- define "tidepool.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tidepool
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object of a component. */}}
{{- define "tidepool.labels" -}}
{{- $root := index . 0 -}}
{{ include "tidepool.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* The name of a component's objects; what is made of it, such as a Job's pods, still has room for 63 characters. */}}
{{- define "tidepool.name" -}}
{{- $root := index . 0 -}}
{{- $release := $root.Release.Name -}}
{{- if gt (len $release) 43 }}
{{- printf "the release name %s has %d characters; choose one of at most 43" $release (len $release) | fail }}
{{- end -}}
{{ printf "%s-%s" $release (index . 1) }}
{{- end -}}

{{/* The image of a component: (list . "agent"). Digests are those of the chart's own version. */}}
{{- define "tidepool.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- $name := printf "%s/tidepool-%s" $image.repository (index . 1) -}}
{{- if $image.tag -}}
{{ printf "%s:%s" $name $image.tag }}
{{- else -}}
{{ printf "%s:%s" $name (index . 0).Chart.AppVersion }}{{ with get $image.digests (index . 1) }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* Where a component's pods may run: (list . "agent"). */}}
{{- define "tidepool.placement" -}}
{{- $values := get (index . 0).Values (index . 1) -}}
affinity: {{- include "tidepool.affinity" . | nindent 2 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* The affinity of the values, and in each of its terms, for one of them is enough, what a component's nodes must be. */}}
{{- define "tidepool.affinity" -}}
{{- $must := include "tidepool.nodes" . | fromYamlArray -}}
{{- $affinity := get (get (index . 0).Values (index . 1)) "affinity" | default dict | deepCopy -}}
{{- $nodes := $affinity.nodeAffinity | default dict -}}
{{- $required := $nodes.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := list -}}
{{- range $required.nodeSelectorTerms | default (list dict) -}}
{{- $expressions := concat (.matchExpressions | default list) $must -}}
{{- $terms = append $terms (set . "matchExpressions" $expressions) -}}
{{- end -}}
{{- $nodes = set $nodes "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{ set $affinity "nodeAffinity" $nodes | toYaml }}
{{- end -}}

{{/* What a node must be to run a component. */}}
{{- define "tidepool.nodes" -}}
{{- $values := (index . 0).Values -}}
- {key: kubernetes.io/os, operator: In, values: [linux]}
- {key: kubernetes.io/arch, operator: In, values: {{ toJson $values.image.architectures }}}
{{- if and (has (index . 1) (list "agent" "nodeLender")) (not (has "Libvirt" $values.agent.providers)) }}
# Each node on which KubeVirt's handler has ever run. The value is not asked: it is false whenever the handler restarts, while
# the guests run on, and a DaemonSet takes its pods away from nodes that do not fit any more.
- {key: kubevirt.io/schedulable, operator: Exists}
{{- end }}
{{- end -}}

{{/* The namespaces that the operator serves, with that of the release if nodes lend: they are there. Empty: all. */}}
{{- define "tidepool.served" -}}
{{- $served := .Values.operator.namespaces -}}
{{- if and $served .Values.nodeLender.enabled -}}
{{- $served = append $served .Release.Namespace | uniq -}}
{{- end -}}
{{ toJson $served }}
{{- end -}}

{{/* Not empty where pods are held to SecurityContextConstraints. */}}
{{- define "tidepool.openshift" -}}
{{- $wanted := .Values.openshift.securityContextConstraints -}}
{{- if or (eq $wanted "Always") (and (eq $wanted "Auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
yes
{{- end -}}
{{- end -}}

{{/* A rule of a Role that lets pods run under constraints: (list . "nonroot-v2"). */}}
{{- define "tidepool.constraints" -}}
{{- if include "tidepool.openshift" (index . 0) -}}
- apiGroups: [security.openshift.io]
  resources: [securitycontextconstraints]
  resourceNames: [{{ index . 1 }}]
  verbs: [use]
{{- end }}
{{- end -}}
