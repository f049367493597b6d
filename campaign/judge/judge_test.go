package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// does is an operation of an owner, in milliseconds, with its reply.
func does(owner int, f, kind string, asked, told int, more string) string {
	line := "{:process %d, :type :%s, :f :%s, :time %d000000, :value {:owner %d, :lock 0, %s}}\n"
	return fmt.Sprintf(line, owner, "invoke", f, asked, owner, more) + fmt.Sprintf(line, owner, kind, f, told, owner, more)
}

func acquires(owner, fence, ttl, share, at int) string {
	return does(owner, "acquire", "ok", at, at+1, fmt.Sprintf(":fence %d, :ttl %d, :share %d", fence, ttl, share))
}

func names(owner, fence int, f, kind string, at int) string {
	return does(owner, f, kind, at, at+1, fmt.Sprintf(":fence %d", fence))
}

func waits(owner, fence, asked, told int) string {
	return does(owner, "acquire", "ok", asked, told, fmt.Sprintf(":fence %d, :ttl 5, :share 1, :block 1", fence))
}

func loses(from, to int) string {
	return fmt.Sprintf("{:process :nemesis, :type :info, :f :loss, :time %d000000, :until %d000000}\n", from, to)
}

// The end of the history of etcd's lock that Knossos ships (data/mutex/bad/etcd.edn), without what was refused before: 0
// has the lock while 3 does.
const etcd = `{:type :invoke, :f :acquire, :process 0, :time 28725735425, :index 1095}
{:type :invoke, :f :acquire, :process 1, :time 28730000000}
{:type :ok, :f :acquire, :process 1, :time 29175673068, :index 1106}
{:type :invoke, :f :acquire, :process 3, :time 29200000000}
{:type :invoke, :f :release, :process 1, :time 29340008318, :index 1108}
{:type :ok, :f :acquire, :process 3, :time 29421304362, :index 1109}
{:type :ok, :f :release, :process 1, :time 29426475479, :index 1110}
{:type :invoke, :f :release, :process 3, :time 29589248615, :index 1115}
{:type :info, :f :stop, :process :nemesis, :time 30332281070, :index 1117}
{:type :ok, :f :acquire, :process 0, :time 32085029300, :index 1119}
`

// What follows in it: the release was refused, so 3 had the lock all the time.
const etcdRefused = `{:type :fail, :f :release, :process 3, :time 32094782390, :error [:not-found "etcdserver: requested lease not found"]}
`

func TestHistoriesThatNoLockCanGive(t *testing.T) {
	holder, shared := acquires(1, 1, 20, 1, 10), acquires(1, 1, 900, 2, 10)
	for name, one := range map[string]struct{ right, wrong, law string }{
		"a grant within a lease":                 {holder + acquires(2, 2, 5, 1, 29), holder + acquires(2, 2, 5, 1, 28), "L1"},
		"a grant after a release":                {holder + names(1, 1, "release", "ok", 12) + acquires(2, 2, 5, 1, 14), holder + names(1, 1, "check", "ok", 12) + acquires(2, 2, 5, 1, 14), "L1"},
		"more than each tolerates":               {shared + acquires(2, 2, 900, 2, 20), shared + acquires(2, 2, 900, 2, 20) + acquires(3, 3, 900, 3, 30), "L1"},
		"a writer beside a reader":               {acquires(1, 1, 20, 0, 10) + acquires(2, 2, 20, 1, 30), acquires(1, 1, 20, 0, 10) + acquires(2, 2, 20, 1, 20), "L1"},
		"a lease that is shortened":              {holder + does(1, "extend", "ok", 12, 13, ":fence 1, :ttl 5") + acquires(2, 2, 5, 1, 17), holder + does(1, "extend", "ok", 12, 13, ":fence 1, :ttl 50") + acquires(2, 2, 5, 1, 40), "L1"},
		"another fence for a retry":              {holder + acquires(1, 1, 20, 1, 15), holder + acquires(1, 2, 20, 1, 15), "L1"},
		"a fence that falls":                     {acquires(1, 1, 2, 1, 10) + acquires(2, 2, 2, 1, 20), acquires(1, 2, 2, 1, 10) + acquires(2, 1, 2, 1, 20), "L2"},
		"a fence that falls where data was lost": {holder + loses(12, 13) + acquires(2, 2, 20, 1, 15), acquires(1, 2, 20, 1, 10) + loses(12, 13) + acquires(2, 1, 20, 1, 15), "L2"},
		"a release by another":                   {holder + names(2, 0, "release", "fail", 12), holder + names(2, 0, "release", "ok", 12), "L3"},
		"a holder refused":                       {holder + names(1, 1, "check", "fail", 30), holder + names(1, 1, "check", "fail", 25), "L3"},
		"a success too late":                     {holder + names(1, 1, "extend", "ok", 30), holder + names(1, 1, "extend", "ok", 31), "L3"},
		"whoever was killed may have it":         {does(1, "acquire", "info", 10, 11, ":ttl 20, :share 1") + names(1, 1, "check", "ok", 40), names(1, 1, "check", "ok", 40), "L3"},
		"who was seen waiting is overtaken":      {waits(1, 1, 10, 40) + waits(2, 2, 12, 50) + does(1, "seen", "ok", 20, 21, ""), waits(1, 2, 10, 50) + waits(2, 1, 25, 40) + does(1, "seen", "ok", 20, 21, ""), "L4"},
		"etcd's lock":                            {etcd, etcd + etcdRefused, "L1"},
	} {
		if found := verdictOf(t, one.right); len(found) > 0 {
			t.Errorf("%s: %q is called wrong", name, found)
		}
		found := verdictOf(t, one.wrong)
		if !slices.ContainsFunc(found, func(what string) bool {
			return strings.HasPrefix(what, one.law) || one.law != "L4" && strings.HasPrefix(what, "L1 to L3")
		}) {
			t.Errorf("%s: broken %s is not found, but %q", name, one.law, found)
		}
	}
}

func verdictOf(t *testing.T, history string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "history.edn")
	if err := os.WriteFile(file, []byte(history), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := judge(file)
	if err != nil {
		t.Fatal(err)
	}
	return append(found.wrong, found.undecided...)
}
