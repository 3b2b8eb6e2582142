// SPDX-License-Identifier: Apache-2.0

// Reads dashboards (JSON files) by Grafana's own schema. Fails if one has a field that Grafana does not know
// there, or a value of another type. Prints the title of each.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The schema's errors may be a list, and the list may be empty.
func failed(err error) bool {
	var several cog.BuildErrors
	if errors.As(err, &several) {
		return len(several) > 0
	}
	return err != nil
}

func main() {
	plugins.RegisterDefaultPlugins()
	for _, path := range os.Args[1:] {
		content, err := os.ReadFile(path)
		read := dashboard.Dashboard{}
		if err == nil {
			err = read.UnmarshalJSONStrict(content)
		}
		if !failed(err) {
			err = read.Validate()
		}
		if failed(err) {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(1)
		}
		fmt.Println(*read.Title)
	}
}
