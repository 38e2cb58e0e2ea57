package main

import "github.com/spf13/cobra"

// commands are the verbs, in the order of their use.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.migrateCommand(), a.checkCommand(), a.archiveCommand(), a.verifyCommand(), a.purgeCommand(),
		a.fetchCommand(), a.statusCommand(), a.holdCommand(), a.idCommand(),
	}
}
