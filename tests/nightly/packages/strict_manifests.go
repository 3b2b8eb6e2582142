// SPDX-License-Identifier: Apache-2.0

// Reads Kubernetes objects (YAML documents) from standard input. Fails if one has a field that Kubernetes
// does not know, a value of another type, or a field twice. Prints the kind of each.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err == nil {
			_, kind, failed := decoder.Decode(document, nil, nil)
			if err = failed; err == nil {
				fmt.Println(kind.Kind)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
