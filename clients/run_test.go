//go:build unix

package clients

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// curlFormat makes curl write a result.
const curlFormat = `%{http_code}\t%header{x-retry-count}\t%header{x-retry-reason}\t%header{idempotency-replayed}\t%{errormsg}\n`

// playCurl gives one process all steps: --next keeps connections.
func playCurl(t *testing.T, j *job, tools *tools) []result {
	dir := t.TempDir()
	body := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	var args []string
	for i, s := range steps {
		if i > 0 {
			args = append(args, "--next")
		}
		args = append(args, "-sS", "-m", "60", "-o", body(i), "-w", curlFormat)
		if s.body != "" {
			args = append(args, "-d", s.body)
		}
		if s.key != "" {
			args = append(args, "-H", "X-Idempotency-Key: "+s.key)
		}
		args = append(args, j.url(s.path))
	}
	got := play(t, j.steps(), []string{"http_proxy=" + j.proxy(), "https_proxy=" + j.proxy(), "CURL_CA_BUNDLE=" + tools.ca}, "curl", args...)
	for i := range got {
		if got[i].status == "000" {
			got[i].status = "0"
			continue
		}
		text, err := os.ReadFile(body(i))
		if err != nil {
			t.Error(err)
		}
		got[i].body = strings.TrimSpace(string(text))
	}
	return got
}

// proxyEnv is how most clients are told.
func proxyEnv(j *job) []string {
	return []string{"HTTP_PROXY=" + j.proxy(), "HTTPS_PROXY=" + j.proxy(), "PROXY=" + j.proxy()}
}

func playPython(name string) func(*testing.T, *job, *tools) []result {
	return func(t *testing.T, j *job, tools *tools) []result {
		arg := name
		if name == "http.client" && j.way == absolute {
			arg = "http.client-absolute"
		}
		env := append(proxyEnv(j), "CA="+tools.ca, "SSL_CERT_FILE="+tools.ca)
		if name == "requests" {
			env = append(proxyEnv(j), "REQUESTS_CA_BUNDLE="+tools.ca)
		}
		return play(t, j.steps(), env, pythonBinary, "testdata/python.py", arg)
	}
}

func playNode(name string) func(*testing.T, *job, *tools) []result {
	return func(t *testing.T, j *job, tools *tools) []result {
		env := append(proxyEnv(j), "NODE_EXTRA_CA_CERTS="+tools.ca)
		if name == "fetch" {
			env = append(env, "NODE_USE_ENV_PROXY=1")
		}
		return play(t, j.steps(), env, nodeBinary(), "testdata/node/clients.mjs", name)
	}
}

func playGo(t *testing.T, j *job, tools *tools) []result {
	return play(t, j.steps(), append(proxyEnv(j), "SSL_CERT_FILE="+tools.ca), must(t, tools.goClient))
}

func playJava(name string) func(*testing.T, *job, *tools) []result {
	return func(t *testing.T, j *job, tools *tools) []result {
		dir := must(t, tools.javaDir)
		host, port, _ := net.SplitHostPort(j.relay.addr)
		var env []string
		if j.named {
			env = []string{"LOGIN=" + j.user() + ":x"}
		}
		return play(t, j.steps(), env, "java",
			"-Dhttp.proxyHost="+host, "-Dhttp.proxyPort="+port, "-Dhttps.proxyHost="+host, "-Dhttps.proxyPort="+port,
			"-Djdk.http.auth.tunneling.disabledSchemes=",
			"-Djavax.net.ssl.trustStore="+filepath.Join(dir, "trust.p12"), "-Djavax.net.ssl.trustStorePassword=changeit",
			"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", dir, "Main", name)
	}
}

// playChromium opens a page that plays the steps and waits for its report.
func playChromium(t *testing.T, j *job, tools *tools) []result {
	home := must(t, tools.chromeHome)
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--disable-dev-shm-usage", "--disable-breakpad", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-features=HttpsUpgrades,HttpsFirstBalancedModeAutoEnable", "--user-data-dir="+t.TempDir(),
		"--proxy-server="+j.proxy(), "--proxy-bypass-list=<-loopback>", "--remote-debugging-port=0", j.url("/page"))
	var output lockedBuffer
	cmd.Env, cmd.Stdout, cmd.Stderr = environment("HOME="+home), &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // all its processes end with it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended }()
	select {
	case text := <-j.report:
		return results(text)
	case <-time.After(patience):
		t.Fatalf("no report: %s", output.String())
	}
	return nil
}
