// Package deploy holds what an installation needs: the image, Kubernetes files, alerts, the
// dashboard, SQL grants and the runbook, README.md. Its tests prove that these say of
// the program what is true: commands, schedules, configuration, metrics. Those of the
// Kubernetes files themselves are in the module test.
package deploy
