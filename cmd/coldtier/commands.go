package main

import "github.com/spf13/cobra"

func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.idCommand(),
	}
}
