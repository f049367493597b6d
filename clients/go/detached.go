package leasehold

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Detached is a lock that was left held, for somebody else to go on with. As text, leasehold:<lock>:<owner>:<fence>, it goes
// into the payload of a job: each byte that is not a letter, a digit or one of -._~ is % and two hexadecimal digits, and
// several locks are separated by commas. The locks have their whole names on the server, with the prefix.
type Detached struct {
	Keys  []string
	Owner string
	Fence int64
}

var (
	detachedPattern = regexp.MustCompile(`^leasehold:([^:]*):([^:]+):(\d{1,16})$`)
	escapedPattern  = regexp.MustCompile(`^[\w\-.~%]*$`)
)

// ParseDetached reads the text of a lock that was left held, written by a program of any language.
func ParseDetached(text string) (Detached, error) {
	wrong := &SettingError{"detached", "it must be leasehold:<lock>:<owner>:<fence>"}
	parts := detachedPattern.FindStringSubmatch(text)
	if parts == nil {
		return Detached{}, wrong
	}
	fence, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil {
		return Detached{}, wrong
	}
	held := Detached{Fence: fence}
	for _, word := range append(strings.Split(parts[1], ","), parts[2]) {
		key, err := url.PathUnescape(word)
		if err != nil || !escapedPattern.MatchString(word) {
			return Detached{}, wrong
		}
		held.Keys = append(held.Keys, key)
	}
	last := len(held.Keys) - 1
	held.Keys, held.Owner = held.Keys[:last], held.Keys[last]
	return held, nil
}

func (d Detached) String() string {
	keys := make([]string, len(d.Keys))
	for at, key := range d.Keys {
		keys[at] = escaped(key)
	}
	return fmt.Sprintf("leasehold:%s:%s:%d", strings.Join(keys, ","), escaped(d.Owner), d.Fence)
}

// MarshalText has it written into JSON as text.
func (d Detached) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (d *Detached) UnmarshalText(text []byte) error {
	held, err := ParseDetached(string(text))
	*d = held
	return err
}

func escaped(word string) string { return strings.ReplaceAll(url.QueryEscape(word), "+", "%20") }
