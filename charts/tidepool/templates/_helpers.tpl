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

{{- define "tidepool.image" -}}
{{- $root := index . 0 -}}
{{ printf "%s/tidepool-%s:%s" $root.Values.image.repository (index . 1) ($root.Values.image.tag | default $root.Chart.AppVersion) }}
{{- end -}}

{{/* Where a component's pods may run. */}}
{{- define "tidepool.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}
