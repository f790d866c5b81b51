package presets

import (
	"fmt"
	"slices"
	"strings"

	"retryproxy/signer"
	"retryproxy/template"
)

// What order numbers a supplier gets.
const (
	SameNumber = "same"
	NewSuffix  = "new_suffix" // -r and the number of the attempt behind it
)

// Submit says how an order is placed at a supplier that the client did not send it to.
type Submit struct {
	Request template.Template `key:"request"`
	Guard   []template.Guard  `key:"guard"`    // all must hold, or nothing is sent
	OrderNo string            `key:"order_no"` // same, new_suffix
}

// Check says why the order may not go to the supplier: the first guard that does not hold.
func (s *Submit) Check(f *template.Facts) error {
	for i := range s.Guard {
		if err := s.Guard[i].Check(guardPath(i), f, s.Request.Tables); err != nil {
			return err
		}
	}
	return nil
}

func guardPath(i int) string { return fmt.Sprintf("submit.guard[%d]", i) }

// submit checks what a file says of orders; nil: nothing.
func (c compiler) submit(f *file, sign *signer.Scheme) *Submit {
	s := &f.Submit
	if !c.Given("submit") && s.Request.URL.String() == "" {
		return nil
	}
	for _, fault := range s.Request.Validate() {
		c.Fail("submit.request."+fault.Path, "%s", fault.Rule)
	}
	for i := range s.Guard {
		for _, fault := range s.Guard[i].Validate(guardPath(i), s.Request.Tables) {
			c.Fail(fault.Path, "%s", fault.Rule)
		}
	}
	if s.OrderNo == "" {
		s.OrderNo = SameNumber
	}
	c.oneOf("submit.order_no", s.OrderNo, SameNumber, NewSuffix)
	if sign != nil && !slices.ContainsFunc(sign.Signature, s.Request.Holds) {
		c.Fail("submit.request", "has no place for the signature, such as %s: -", strings.Join(sign.Signature, ", "))
	}
	if sign != nil && sign.Case == "" && sign.Encoding != "base64" {
		c.Fail("sign.case", "want upper or lower: submit makes requests that no client wrote before")
	}
	return s
}
