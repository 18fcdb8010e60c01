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

{{/* The name of a component's objects; cluster-wide ones carry the release's namespace too. */}}
{{- define "tidepool.name" -}}
{{- $root := index . 0 -}}
{{ printf "%s-%s" $root.Release.Name (index . 1) | trunc 63 }}
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
