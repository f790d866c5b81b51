// Command goclient plays the steps on standard input with Go's net/http: see
// python.py for the lines.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	client := &http.Client{Timeout: time.Minute}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Split(in.Text(), "\t")
		fmt.Fprintln(os.Stdout, play(client, f[0], f[1], f[2], f[3]))
	}
}

func play(client *http.Client, method, url, key, body string) string {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, url, content)
	if err != nil {
		return failed(err)
	}
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	res, err := client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return failed(err)
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", res.StatusCode, res.Header.Get("X-Retry-Count"),
		res.Header.Get("X-Retry-Reason"), res.Header.Get("Idempotency-Replayed"), line(string(text)))
}

func failed(err error) string { return "0\t\t\t\t" + line(err.Error()) }

// line is text on one line.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
