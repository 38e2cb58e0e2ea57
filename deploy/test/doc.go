// Package deploy tests the Kubernetes files of ../kubernetes: each overlay is rendered by
// Kustomize, decoded strictly into the API's own types, checked against the API's schemas
// by kubeconform, and then asked whether it keeps what coldtier needs of it. It is a module
// of its own, so that the program's needs none of this.
//
//	go test -C deploy/test .
//
// # Words
//
//   - rendered: what `kubectl kustomize OVERLAY` prints.
//   - schema: JSON Schema of one kind, made of the description of the API (swagger.json)
//     that the module k8s.io/kubernetes carries. Nothing else is asked of the network.
//   - pod: a pod's template, of a CronJob or a Deployment.
package deploy
