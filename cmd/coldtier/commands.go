package main

import "github.com/spf13/cobra"

// commands are the verbs, in the order of their use.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.migrateCommand(), a.checkCommand(), a.archiveCommand(), a.verifyCommand(), a.planCommand(), a.approveCommand(), a.purgeCommand(),
		a.fetchCommand(), a.restoreCommand(), a.exportCommand(), a.drillCommand(), a.patrolCommand(), a.rebuildCommand(), a.schedulerCommand(), a.serveCommand(), a.statusCommand(), a.holdCommand(), a.stopCommand(), a.resumeCommand(), a.canaryCommand(), a.idCommand(),
	}
}
