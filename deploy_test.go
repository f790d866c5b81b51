package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"retryproxy/admin"
	"retryproxy/config"
	"retryproxy/internal/seal"
)

// around is what a deployment puts around the proxy.
type around struct {
	env     map[string]string
	secrets []string // folders of the files of secrets, and such files
	folders []string // that can be written and outlive the process
	grace   time.Duration
	args    []string // of the program
}

// deployed reads a configuration as the proxy there would, and checks what holds for
// all of them.
func deployed(t *testing.T, name, text string, in around) *config.Config {
	t.Helper()
	key, err := seal.New("test")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Parse(name, []byte(text), config.Options{
		Getenv: func(name string) string { return in.env[name] },
		ReadFile: func(file string) ([]byte, error) {
			if !slices.ContainsFunc(in.secrets, func(at string) bool { return file == at || path.Dir(file) == at }) {
				return nil, fmt.Errorf("no secret is at %s", file)
			}
			return []byte(key), nil
		},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if cfg.Store.Key == "" || len(cfg.Warnings()) > 0 {
		t.Errorf("%s: store.key is %q and warnings are %q, want a key and none", name, cfg.Store.Key, cfg.Warnings())
	}
	if cfg.Store.Kind == "sqlite" && !slices.Contains(in.folders, cfg.Store.Path) {
		t.Errorf("%s: the store is in %s, which is none of %q", name, cfg.Store.Path, in.folders)
	}
	if in.grace <= cfg.Drain+5*time.Second {
		t.Errorf("%s: it is killed after %s, want some seconds more than drain, %s", name, in.grace, cfg.Drain)
	}
	if cfg.Log.File == "" { // that of Windows has a folder that is not here
		if err := mayRun(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	servesWith(t, name, in.args)
	return cfg
}

// servesWith says whether serve takes these arguments, up to the file that is not here.
func servesWith(t *testing.T, name string, args []string) {
	t.Helper()
	var out bytes.Buffer
	code := run(t.Context(), args, environment{stdout: &out, stderr: &out, getenv: os.Getenv})
	if want := "config: open /etc/retryproxy/config.yaml: "; code != 2 || !strings.HasPrefix(out.String(), want) {
		t.Errorf("%s: retryproxy %q = %d, %q, want no fault but the file", name, args, code, out.String())
	}
}

// portOf is the port of an address.
func portOf(addr string) int {
	n, _ := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	return n
}

// healthServes asks the health listener for a path.
func healthServes(t *testing.T, path string) {
	t.Helper()
	h := admin.Health(admin.Deps{Ready: func() (bool, string) { return true, "" }, Metrics: prometheus.NewRegistry()})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, http.NoBody))
	if w.Code != http.StatusOK {
		t.Errorf("the health listener answers %s with %d", path, w.Code)
	}
}

// object is what these tests read of an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Selector yaml.Node
		Ports    []struct {
			Port       int
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Metadata struct {
				Labels, Annotations map[string]string
			}
			Spec pod
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	Grace           int `yaml:"terminationGracePeriodSeconds"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
	} `yaml:"securityContext"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			SecretName string `yaml:"secretName"`
		}
		EmptyDir *struct {
			SizeLimit string `yaml:"sizeLimit"`
		} `yaml:"emptyDir"`
	}
}

type container struct {
	Restart string `yaml:"restartPolicy"`
	Args    []string
	Env     []struct{ Name, Value string }
	Ports   []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Startup   probe `yaml:"startupProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
	Resources struct{ Limits struct{ Memory string } }
	Security  struct {
		Escalation *bool                   `yaml:"allowPrivilegeEscalation"`
		ReadOnly   bool                    `yaml:"readOnlyRootFilesystem"`
		Caps       struct{ Drop []string } `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
		Sub  string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// objects reads all objects of a file.
func objects(t *testing.T, file string) (list []object) {
	t.Helper()
	in := yaml.NewDecoder(strings.NewReader(readShipped(t, file)))
	for {
		var o object
		err := in.Decode(&o)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		list = append(list, o)
	}
}

// named finds an object.
func named(t *testing.T, all []object, kind, name string) *object {
	t.Helper()
	i := slices.IndexFunc(all, func(o object) bool { return o.Kind == kind && (name == "" || o.Metadata.Name == name) })
	if i < 0 {
		t.Fatalf("there is no %s %s", kind, name)
	}
	return &all[i]
}

// port is the number of a port by its name.
func (c *container) port(name string) int {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return -1
}

// quantity reads Kubernetes' sizes.
func quantity(t *testing.T, text string) int64 {
	t.Helper()
	for unit, factor := range map[string]int64{"Mi": 1 << 20, "Gi": 1 << 30, "MiB": 1 << 20, "m": 1 << 20, "g": 1 << 30} {
		if n, err := strconv.ParseInt(strings.TrimSuffix(text, unit), 10, 64); err == nil && strings.HasSuffix(text, unit) {
			return n * factor
		}
	}
	t.Fatalf("%q is no size", text)
	return 0
}

// TestKubernetesSidecar and its neighbours: what the files say of each other, and of what
// the proxy is.
func TestKubernetesSidecar(t *testing.T) {
	all := objects(t, "deploy/kubernetes/sidecar.yaml")
	o := named(t, all, "StatefulSet", "")
	if len(o.Spec.Template.Spec.InitContainers) != 1 {
		t.Fatal("want one sidecar")
	}
	c := &o.Spec.Template.Spec.InitContainers[0]
	if c.Restart != "Always" {
		t.Errorf("restartPolicy = %q: it is no sidecar", c.Restart)
	}
	cfg := inPod(t, all, o, c)
	if at := "http://shop=17;task=report:x@" + cfg.Listen.Proxy; o.Spec.Template.Spec.Containers[0].Env[0].Value != at {
		t.Errorf("the bot has %q, want %q", o.Spec.Template.Spec.Containers[0].Env[0].Value, at)
	}
}

func TestKubernetesFleet(t *testing.T) {
	all := objects(t, "deploy/kubernetes/fleet.yaml")
	o := named(t, all, "Deployment", "retryproxy")
	c := &o.Spec.Template.Spec.Containers[0]
	cfg := inPod(t, all, o, c)
	s := named(t, all, "Service", "retryproxy")
	if got := c.port(s.Spec.Ports[0].TargetPort); got != portOf(cfg.Listen.Proxy) {
		t.Errorf("the Service leads to port %d, the proxy listens on %s", got, cfg.Listen.Proxy)
	}
	redis := objects(t, "deploy/kubernetes/redis.yaml")
	place, _, _ := strings.Cut(strings.TrimPrefix(cfg.Store.Place(), "redis at "), "/")
	at := named(t, redis, "Service", "")
	if want := fmt.Sprintf("%s:%d", at.Metadata.Name, at.Spec.Ports[0].Port); place != want {
		t.Errorf("the store is at %s, Redis at %s", place, want)
	}
	args := strings.Join(named(t, redis, "StatefulSet", "").Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{"--appendonly yes", "--maxmemory-policy noeviction", "--requirepass $(REDIS_PASSWORD)"} {
		if !strings.Contains(args, want) {
			t.Errorf("redis %s lacks %s", args, want)
		}
	}
	var budget struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	if err := named(t, all, "PodDisruptionBudget", "").Spec.Selector.Decode(&budget); err != nil || budget.MatchLabels["app"] != o.Spec.Template.Metadata.Labels["app"] {
		t.Errorf("the budget selects %v, %v", budget.MatchLabels, err)
	}
}

// inPod checks the proxy's container in a Pod, and reads its configuration.
func inPod(t *testing.T, all []object, o *object, c *container) *config.Config {
	t.Helper()
	p := &o.Spec.Template.Spec
	in := around{env: map[string]string{}, grace: time.Duration(p.Grace-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second, args: c.Args}
	for _, e := range c.Env {
		in.env[e.Name] = "of-" + e.Name
	}
	var text, tmp string
	for _, m := range c.Mounts {
		if m.Sub != "" {
			t.Errorf("%s is mounted by subPath: changes are never seen", m.Path)
		}
		for _, v := range o.Spec.VolumeClaimTemplates {
			if v.Metadata.Name == m.Name {
				in.folders = append(in.folders, m.Path)
			}
		}
		for _, v := range p.Volumes {
			switch {
			case v.Name != m.Name:
			case v.Secret.SecretName != "":
				in.secrets = append(in.secrets, m.Path)
			case v.EmptyDir != nil && m.Path == "/tmp":
				tmp = v.EmptyDir.SizeLimit
			case v.ConfigMap.Name != "" && slices.Contains(c.Args, m.Path+"/config.yaml"):
				text = named(t, all, "ConfigMap", v.ConfigMap.Name).Data["config.yaml"]
			}
		}
	}
	cfg := deployed(t, o.Metadata.Name, text, in)
	listens(t, o, c, cfg)
	limit := quantity(t, c.Resources.Limits.Memory)
	goal := int64(0)
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			goal = quantity(t, e.Value)
		}
	}
	if goal < limit*8/10 || goal >= limit || int64(cfg.Body.MemoryTotal) > limit/2 {
		t.Errorf("GOMEMLIMIT is %d and body.memory_total %d of a limit of %d", goal, cfg.Body.MemoryTotal, limit)
	}
	if size := quantity(t, tmp); size <= int64(cfg.Body.DiskTotal) {
		t.Errorf("/tmp has %d bytes, body.disk_total is %d", size, cfg.Body.DiskTotal)
	}
	if s := c.Security; !p.SecurityContext.RunAsNonRoot || !s.ReadOnly || s.Escalation == nil || *s.Escalation || !slices.Equal(s.Caps.Drop, []string{"ALL"}) {
		t.Errorf("security contexts = %+v, %+v, want none of it", p.SecurityContext, s)
	}
	return cfg
}

// listens checks ports and paths of probes and scrapes against what is served there.
func listens(t *testing.T, o *object, c *container, cfg *config.Config) {
	t.Helper()
	health := portOf(cfg.Listen.Health)
	for _, p := range []probe{c.Startup, c.Readiness, c.Liveness} {
		if c.port(p.HTTPGet.Port) != health {
			t.Errorf("a probe asks port %q, the health listener is %s", p.HTTPGet.Port, cfg.Listen.Health)
		}
		healthServes(t, p.HTTPGet.Path)
	}
	a := o.Spec.Template.Metadata.Annotations
	if a["prometheus.io/scrape"] != "true" || a["prometheus.io/port"] != strconv.Itoa(health) {
		t.Errorf("annotations = %v, want scrapes of port %d", a, health)
	}
	healthServes(t, a["prometheus.io/path"])
	if strings.HasPrefix(cfg.Listen.Health, "127.") {
		t.Errorf("the health listener %s is on loopback, where nobody can ask it", cfg.Listen.Health)
	}
}

func TestComposeKit(t *testing.T) {
	var file struct {
		Services map[string]struct {
			Command []string
			Grace   string `yaml:"stop_grace_period"`
			Env     map[string]string
			Ports   []string
			Secrets []string
			Tmpfs   []string
			Volumes []string
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(readShipped(t, "deploy/compose/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["retryproxy"]
	grace, err := time.ParseDuration(s.Grace)
	if err != nil {
		t.Fatal(err)
	}
	in := around{grace: grace, args: s.Command}
	for _, name := range s.Secrets {
		in.secrets = append(in.secrets, "/run/secrets/"+name)
	}
	for _, v := range s.Volumes {
		if from, to, _ := strings.Cut(v, ":"); !strings.HasPrefix(from, ".") {
			in.folders = append(in.folders, to)
		}
	}
	cfg := deployed(t, "compose", readShipped(t, "deploy/compose/config/config.yaml"), in)
	for _, want := range []string{cfg.Listen.Proxy, cfg.Listen.Admin} {
		if p := portOf(want); !slices.Contains(s.Ports, fmt.Sprintf("127.0.0.1:%d:%d", p, p)) {
			t.Errorf("ports = %q, want %d on loopback", s.Ports, p)
		}
	}
	if portOf(cfg.Listen.Admin) != portOf(config.Default().Listen.Admin) {
		t.Error("the image's health check asks the default port of the admin listener")
	}
	if scraped, want := readShipped(t, "deploy/compose/prometheus.yaml"), fmt.Sprintf(`targets: ["retryproxy:%d"]`, portOf(cfg.Listen.Health)); !strings.Contains(scraped, want) {
		t.Errorf("prometheus.yaml lacks %s", want)
	}
	_, size, _ := strings.Cut(s.Tmpfs[0], "size=")
	size, _, _ = strings.Cut(size, ",")
	if quantity(t, size) < int64(cfg.Body.DiskTotal) {
		t.Errorf("/tmp has %s, body.disk_total is %d", size, cfg.Body.DiskTotal)
	}
}

// unit are the settings of a systemd unit, each with all its values.
func unit(text string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			out[name] = append(out[name], value)
		}
	}
	return out
}

func TestSystemdKit(t *testing.T) {
	u := unit(readShipped(t, "deploy/systemd/retryproxy.service"))
	grace, err := time.ParseDuration(u["TimeoutStopSec"][0])
	if err != nil {
		t.Fatal(err)
	}
	in := around{env: map[string]string{"CREDENTIALS_DIRECTORY": "/credentials"}, grace: grace, args: strings.Fields(u["ExecStart"][0])[1:], folders: []string{"/var/lib/" + u["StateDirectory"][0]}}
	for _, c := range u["LoadCredential"] {
		name, _, _ := strings.Cut(c, ":")
		in.secrets = append(in.secrets, "/credentials/"+name)
	}
	deployed(t, "systemd", readShipped(t, "deploy/systemd/config.yaml"), in)
	if !strings.Contains(u["ExecReload"][0], "-HUP") || u["RestartPreventExitStatus"][0] != "2" {
		t.Errorf("ExecReload = %q, RestartPreventExitStatus = %q, want SIGHUP, and 2 for a bad configuration", u["ExecReload"], u["RestartPreventExitStatus"])
	}
}

var exposure = regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`)

// TestSystemdTakesTheUnit asks systemd itself.
func TestSystemdTakesTheUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("this machine has no systemd-analyze")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "retryproxy.service")
	text := strings.Replace(readShipped(t, "deploy/systemd/retryproxy.service"), "/usr/local/bin/retryproxy", program, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	analyze := func(args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "systemd-analyze", append(args, file)...).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze %q: %v", args, err)
		}
		return string(out)
	}
	for line := range strings.Lines(analyze("verify", "--man=no")) {
		if strings.Contains(line, filepath.Base(file)) { // others of this machine may have faults
			t.Errorf("verify: %s", line)
		}
	}
	got := exposure.FindStringSubmatch(analyze("security", "--offline=true", "--no-pager"))
	if got == nil {
		t.Skip("this systemd says nothing about security offline")
	}
	if level, _ := strconv.ParseFloat(got[1], 64); level > 1.5 {
		t.Errorf("exposure level = %v, want at most 1.5", level)
	}
}

func TestWindowsKit(t *testing.T) {
	text := readShipped(t, "deploy/windows/config.yaml")
	const folder = `C:\ProgramData\retryproxy`
	cfg := deployed(t, "windows", text, around{
		secrets: []string{folder + `\store.key`}, folders: []string{folder + `\data`},
		grace: time.Minute, args: []string{"serve", "-config", "/etc/retryproxy/config.yaml"},
	})
	if cfg.Log.File != folder+`\logs\retryproxy.log` {
		t.Errorf("log.file = %q, where the script makes no folder", cfg.Log.File)
	}
	script := readShipped(t, "deploy/windows/install.ps1")
	for _, want := range []string{"'" + folder + "'", "Join-Path $folder 'data'", "Join-Path $folder 'logs'", "Join-Path $folder 'store.key'"} {
		if !strings.Contains(script, want) {
			t.Errorf("the script lacks %s, on which the configuration relies", want)
		}
	}
}

// ignored says whether .dockerignore keeps a file out of the image's build: the last
// pattern that means it, or a folder that it is in, decides.
func ignored(patterns []string, file string) (out bool) {
	for _, p := range patterns {
		p, back := strings.CutPrefix(p, "!")
		anywhere, deep := strings.CutPrefix(p, "**/")
		for at := file; at != "."; at = path.Dir(at) {
			means, _ := path.Match(p, at)
			if deep {
				means, _ = path.Match(anywhere, path.Base(at))
			}
			if means {
				out = !back
			}
		}
	}
	return out
}

// TestTheImageHasWhatIsBuilt: all files of the program, embedded ones too, are in the
// build of the image, and no secret of a deployment is.
func TestTheImageHasWhatIsBuilt(t *testing.T) {
	patterns := strings.Fields(readShipped(t, ".dockerignore"))
	const list = `{{if and .Module .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}`
	found, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", list, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Fields(string(found))
	if len(files) < 100 {
		t.Errorf("the program has %d files, want more", len(files))
	}
	for _, file := range files {
		if name, err := filepath.Rel(here, file); err != nil || ignored(patterns, filepath.ToSlash(name)) {
			t.Errorf(".dockerignore keeps %s out of the image's build (%v)", name, err)
		}
	}
	for _, name := range []string{"deploy/compose/secrets/store_key", ".git/config", "main_test.go", "config/testdata/x.yaml", "example/bot.sh"} {
		if !ignored(patterns, name) {
			t.Errorf(".dockerignore lets %s into the image's build", name)
		}
	}
}
