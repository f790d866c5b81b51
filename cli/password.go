package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"retryproxy/access"
)

// HashPassword prints the bcrypt hash of a password, for clients.users.
func HashPassword(args []string, env Env) int {
	if _, code, ok := newFlags("hash-password", env).parse(args, 0, 0); !ok {
		return code
	}
	password, err := readPassword(env)
	if err != nil {
		return env.failed(err)
	}
	hash, err := access.HashPassword(password)
	if err != nil {
		return env.failed(err)
	}
	fmt.Fprintln(env.Stdout, hash)
	return OK
}

// readPassword reads without echo from a terminal, else the first line.
func readPassword(env Env) (string, error) {
	password, err := "", error(nil)
	if file, ok := env.Stdin.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		password, err = askPassword(int(file.Fd()), env.Stderr)
	} else {
		password, err = bufio.NewReader(io.LimitReader(env.Stdin, 4096)).ReadString('\n')
		password = strings.TrimRight(password, "\r\n")
		if errors.Is(err, io.EOF) {
			err = nil // a pipe without a final line break
		}
	}
	if err != nil {
		return "", fmt.Errorf("read the password: %w", err)
	}
	return password, nil
}

// askPassword asks twice, so that a slip does not lock a bot out.
func askPassword(fd int, out io.Writer) (string, error) {
	var said [2]string
	for i, prompt := range [...]string{"Password: ", "Once more: "} {
		fmt.Fprint(out, prompt)
		text, err := term.ReadPassword(fd)
		fmt.Fprintln(out)
		if err != nil {
			return "", err
		}
		said[i] = string(text)
	}
	if said[0] != said[1] {
		return "", errors.New("the two are not the same")
	}
	return said[0], nil
}
