package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
)

// An op is an operation of a client: its request, and its reply.
type op struct {
	f                 string
	kind              string // ok, fail or info, as Jepsen has it
	asked, told       int64  // in microseconds
	order             int    // of the requests
	Owner, Set, Fence int64
	Lock              *int64 // nil: every lock
	TTL, Share        int64
	Block, Ticket     int
	Over              int
}

// A span of the wall clock, in microseconds.
type span struct{ from, to int64 }

// A round is a history that is judged by itself. Of an earlier round on the same servers, only the fences count.
type round struct {
	isRun bool // on new servers
	late  int64
	ops   []*op
	spans map[string][]span
}

type line struct {
	Process any
	Type, F string
	Time    int64
	Until   int64
	Late    int64
	Value   json.RawMessage
}

// A vector inside of an operation says why it failed.
var vector = regexp.MustCompile(`\[[^\[\]{}]*\]`)

var token = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s,{}\[\]]+`)

// jsonOf returns a map of EDN with simple values as JSON.
func jsonOf(edn string) string {
	var out strings.Builder
	isKey := true
	for _, word := range token.FindAllString(vector.ReplaceAllString(edn, "nil"), -1) {
		switch {
		case word == "{", word == "}":
			out.WriteString(word)
			if word == "}" {
				out.WriteString(",")
			}
			isKey = word == "{" || !isKey
			continue
		case word == "[" || word == "]": // around a whole history
			continue
		case word == "nil":
			word = "null"
		case word[0] == ':':
			word = `"` + word[1:] + `"`
		}
		out.WriteString(word)
		if isKey {
			out.WriteString(":")
		} else {
			out.WriteString(",")
		}
		isKey = !isKey
	}
	return strings.TrimSuffix(strings.ReplaceAll(out.String(), ",}", "}"), ",")
}

// rounds calls judge with each round of a transcript, as the campaign writes it, or with a history of Knossos.
func rounds(file string, judge func(*round)) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	lines := bufio.NewReaderSize(in, 1<<20)
	now, open := newRound(), map[any]*op{}
	for number := 1; ; number++ {
		text, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return err
		}
		text = strings.TrimSpace(text)
		if strings.HasSuffix(file, ".edn") {
			text = jsonOf(text)
		}
		if text != "" {
			var one line
			if err := json.Unmarshal([]byte(text), &one); err != nil {
				return fmt.Errorf("%s:%d: %w", file, number, err)
			}
			if one.F == "run" || one.F == "round" {
				if len(now.ops) > 0 {
					judge(now)
				}
				now, open = newRound(), map[any]*op{}
				now.isRun, now.late = one.F == "run", one.Late
			} else if err := now.add(one, open); err != nil {
				return fmt.Errorf("%s:%d: %w", file, number, err)
			}
		}
		if err == io.EOF {
			break
		}
	}
	judge(now)
	return nil
}

func newRound() *round { return &round{spans: map[string][]span{}} }

func (r *round) add(one line, open map[any]*op) error {
	at := one.Time / 1000
	if one.Process == "nemesis" {
		r.spans[one.F] = append(r.spans[one.F], span{at, one.Until / 1000})
		return nil
	}
	if one.Type == "invoke" {
		asked := &op{f: one.F, kind: "info", asked: at, told: at, order: len(r.ops)}
		open[one.Process] = asked
		r.ops = append(r.ops, asked)
	}
	asked := open[one.Process]
	if asked == nil {
		return fmt.Errorf("process %v has asked for nothing", one.Process)
	}
	if len(one.Value) > 0 {
		if err := json.Unmarshal(one.Value, asked); err != nil {
			return err
		}
	}
	if one.Type != "invoke" {
		asked.kind, asked.told = one.Type, at
		delete(open, one.Process)
	}
	if len(one.Value) == 0 || string(one.Value) == "null" {
		// Of Knossos: the process is the owner of the only lock, for ever, and is told no fence.
		asked.Owner, asked.Lock, asked.TTL, asked.Share = int64(one.Process.(float64)), new(int64), forever, 1
	}
	return nil
}

// joined sorts spans and joins those that meet.
func joined(spans []span) []span {
	sort.Slice(spans, func(i, j int) bool { return spans[i].from < spans[j].from })
	var all []span
	for _, one := range spans {
		if last := len(all) - 1; last >= 0 && one.from <= all[last].to {
			all[last].to = max(all[last].to, one.to)
		} else {
			all = append(all, one)
		}
	}
	return all
}

// within returns how many of the joined spans end before from, and whether one meets from to to.
func within(spans []span, from, to int64) (int, bool) {
	at := sort.Search(len(spans), func(i int) bool { return spans[i].to >= from })
	return at, at < len(spans) && spans[at].from <= to
}
