// Package strict answers one question: are the files of the deploy kit what Kubernetes and Compose read?
//
// By their own types: a key that they do not know, or of the wrong type, is a fault.
package strict

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the objects of the kit.
var kinds = map[string]func() any{
	"v1 ConfigMap":                       func() any { return &corev1.ConfigMap{} },
	"v1 Service":                         func() any { return &corev1.Service{} },
	"apps/v1 Deployment":                 func() any { return &appsv1.Deployment{} },
	"apps/v1 StatefulSet":                func() any { return &appsv1.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policyv1.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
}

func TestKubernetes(t *testing.T) {
	files, err := filepath.Glob("../../kubernetes/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v, want files", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range bytes.Split(text, []byte("\n---\n")) {
			var head struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal(doc, &head); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			kind := head.APIVersion + " " + head.Kind
			if kinds[kind] == nil {
				t.Errorf("%s: %q is no kind that this test knows", file, kind)
				continue
			}
			if err := yaml.UnmarshalStrict(doc, kinds[kind]()); err != nil {
				t.Errorf("%s: %s: %v", file, kind, err)
			}
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	if err := yaml.UnmarshalStrict([]byte("spec: {template: {spec: {terminationGracePeriod: 5}}}"), &appsv1.Deployment{}); err == nil {
		t.Error("a key that Kubernetes does not know is no fault")
	}
}

func TestCompose(t *testing.T) {
	for _, file := range []string{"../../compose/compose.yaml", "../../../example/compose.yaml", "../../../example/fleet.yaml"} {
		for _, profiles := range [][]string{nil, {"*"}} {
			o, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles(profiles))
			if err != nil {
				t.Fatal(err)
			}
			p, err := o.LoadProject(t.Context())
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			for _, s := range p.Services {
				for _, v := range s.Volumes {
					if _, err := os.Stat(v.Source); v.Type == "bind" && err != nil {
						t.Errorf("%s: %s mounts what is not there: %v", file, s.Name, err)
					}
				}
			}
		}
	}
}
