// Renders a Helm chart as `helm template` does, as far as the chart in packaging/helm needs it: Go's templates, the
// functions of sprig, and Helm's own include, toYaml and required. Helm itself is in no Debian package.
//
//	go run render_chart.go CHART_FOLDER < CONTEXT.json
//
// CONTEXT has Values, Release and Chart. Prints the rendered files, each behind a line of "---".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A line for each name, with its value as JSON, which is YAML too.
func toYaml(value interface{}) (string, error) {
	members, isMap := value.(map[string]interface{})
	if !isMap {
		out, err := json.Marshal(value)
		return string(out), err
	}
	var lines []string
	for name, member := range members {
		out, err := json.Marshal(member)
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%q: %s", name, out))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n"), nil
}

func main() {
	folder := os.Args[1]
	var context map[string]interface{}
	decoder := json.NewDecoder(os.Stdin)
	check(decoder.Decode(&context))
	chart := context["Chart"].(map[string]interface{})
	base := fmt.Sprintf("%s/templates", chart["Name"])
	context["Template"] = map[string]interface{}{"BasePath": base}

	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	functions["toYaml"] = toYaml
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	all.Funcs(functions)

	files, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		_, err = all.New(base + "/" + filepath.Base(file)).Parse(string(text))
		check(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".yaml" {
			fmt.Printf("---\n# %s\n", filepath.Base(file))
			check(all.ExecuteTemplate(os.Stdout, base+"/"+filepath.Base(file), context))
			fmt.Println()
		}
	}
	check(all.ExecuteTemplate(os.Stderr, base+"/NOTES.txt", context))
}
