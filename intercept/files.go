package intercept

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Files are the paths of the PEM files of an authority: its certificate,
// followed by those it needs up to a root where it is not one, and its key.
type Files struct {
	Cert, Key string
	Make      bool // where neither is there, they are made
}

const (
	caYears    = 10             // trust is set up by hand on every client: seldom is better
	clockSlack = 48 * time.Hour // how far the clocks of clients may be behind

	// A key without a certificate is another process that is making the pair,
	// for so long; after that it is a leftover.
	patience = 100
	pause    = 20 * time.Millisecond
)

// Open loads the authority, or, if it may, makes one where neither file exists; of several
// processes that do so at once one wins and the others load its pair. Errors
// name the file and the rule it breaks: one file without the other, a key that
// others may read, a certificate that is no authority, is not valid now or does
// not go with the key.
func Open(f Files) (*Authority, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("intercept: want the paths of a certificate and of a key")
	}
	created, err := f.settle()
	if err != nil {
		return nil, fmt.Errorf("intercept: %w", err)
	}
	a, err := load(f, time.Now())
	if err != nil {
		return nil, fmt.Errorf("intercept: %w", err)
	}
	a.created = created
	return a, nil
}

// settle leaves both files in place or gives an error. The key is written first
// and the certificate last: where there is a certificate the key is complete.
func (f Files) settle() (created bool, err error) {
	for range patience {
		cert, err1 := exists(f.Cert)
		key, err2 := exists(f.Key)
		switch {
		case err1 != nil || err2 != nil:
			return false, cmp.Or(err1, err2)
		case cert && key:
			return false, nil
		case cert:
			return false, fmt.Errorf("there is a certificate %s but no key %s: give both, or move it away to have a new pair made", f.Cert, f.Key)
		case !key && !f.Make:
			return false, fmt.Errorf("there is neither a certificate %s nor a key %s", f.Cert, f.Key)
		case !key:
			if err = f.create(time.Now()); !errors.Is(err, fs.ErrExist) {
				return err == nil, err
			}
		}
		time.Sleep(pause)
	}
	return false, fmt.Errorf("there is a key %s but no certificate %s: give both, or move it away to have a new pair made", f.Key, f.Cert)
}

func exists(name string) (bool, error) {
	_, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// create makes a pair and writes it. fs.ErrExist: another process was first.
func (f Files) create(now time.Time) error {
	if f.Cert == f.Key {
		return fmt.Errorf("%s: want two files, one for the certificate and one for the key", f.Key)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	cert, err := newRoot(key, now)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, name := range [...]string{f.Key, f.Cert} {
		if err = os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
	}
	if err = writeNew(f.Key, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der})); err != nil {
		return err
	}
	if err = writeWhole(f.Cert, pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: cert})); err != nil {
		_ = os.Remove(f.Key) // ours, and of no use alone
	}
	return err
}

// newRoot signs the certificate of an authority with its own key.
func newRoot(key *ecdsa.PrivateKey, now time.Time) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(spki)
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("retryproxy CA %x", id[:4])},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true, // signs hosts, never another authority
		SubjectKeyId:          id[:20],
	}
	return x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
}

// writeNew writes a file that must not exist yet and only we may read.
func writeNew(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = fill(file, data); err != nil {
		_ = os.Remove(name)
	}
	return err
}

// writeWhole puts a file that all may read in place at once.
func writeWhole(name string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = cmp.Or(file.Chmod(0o644), fill(file, data))
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// fill writes to the disk and closes.
func fill(file *os.File, data []byte) error {
	_, err := file.Write(data)
	return cmp.Or(err, file.Sync(), file.Close())
}
