package leasehold

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// A Reply is what a server has answered: an int64, a string, a float64, a bool, nil, a ServerError, or a []Reply. Maps and
// sets are flat slices.
type Reply = any

// A ServerError is an error that a server has answered with. Its first word is the code, such as NOPERM.
type ServerError string

func (e ServerError) Error() string { return string(e) }

const (
	longestText  = 512 << 20
	mostNested   = 32
	mostReserved = 1024
	chunk        = 64 << 10
)

var errProtocol = errors.New("the server does not speak RESP")

func appendCommand(buf []byte, words []string) []byte {
	buf = append(buf, '*')
	buf = strconv.AppendInt(buf, int64(len(words)), 10)
	for _, word := range words {
		buf = append(buf, "\r\n$"...)
		buf = strconv.AppendInt(buf, int64(len(word)), 10)
		buf = append(buf, "\r\n"...)
		buf = append(buf, word...)
	}
	return append(buf, "\r\n"...)
}

// readReply reads one reply of RESP2 or RESP3. isPush: nobody has asked for it.
func readReply(r *bufio.Reader) (reply Reply, isPush bool, err error) {
	return readNested(r, 0)
}

func readNested(r *bufio.Reader, depth int) (reply Reply, isPush bool, err error) {
	head, err := readHead(r)
	if err != nil {
		return nil, false, err
	}
	kind, rest := head[0], head[1:]
	switch kind {
	case ':':
		number, err := parseInt(rest)
		return number, false, err
	case '+':
		return string(rest), false, nil
	case '-':
		return ServerError(rest), false, nil
	case '_':
		return nil, false, nil
	case '#':
		return string(rest) == "t", false, nil
	case ',':
		number, err := strconv.ParseFloat(string(rest), 64)
		if err != nil && !math.IsInf(number, 0) {
			return nil, false, errProtocol
		}
		return number, false, nil
	case '(':
		return string(rest), false, nil
	case '$', '=', '!':
		length, err := parseInt(rest)
		if err != nil || length < 0 {
			return nil, false, err
		}
		text, err := readText(r, length)
		if err != nil {
			return nil, false, err
		}
		switch {
		case kind == '!':
			return ServerError(text), false, nil
		case kind == '=' && len(text) > 4:
			return text[4:], false, nil
		}
		return text, false, nil
	case '*', '~', '>', '%', '|':
		count, err := parseInt(rest)
		if err != nil || count < 0 {
			return nil, false, err
		}
		if depth >= mostNested || count > longestText {
			return nil, false, errProtocol
		}
		if kind == '%' || kind == '|' {
			count *= 2
		}
		all := make([]Reply, 0, min(count, mostReserved))
		for range count {
			each, _, err := readNested(r, depth+1)
			if err != nil {
				return nil, false, err
			}
			all = append(all, each)
		}
		// Attributes come before what they belong to.
		if kind == '|' {
			return readNested(r, depth+1)
		}
		return all, kind == '>', nil
	}
	return nil, false, errProtocol
}

// readHead reads a line, without its end. What it returns is valid until the next read.
func readHead(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		var more []byte
		line = append([]byte(nil), line...)
		for err == bufio.ErrBufferFull && len(line) < longestText {
			more, err = r.ReadSlice('\n')
			line = append(line, more...)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return nil, errProtocol
	}
	return line[:len(line)-2], nil
}

// readText does not reserve what has not come.
func readText(r *bufio.Reader, length int64) (string, error) {
	if length > longestText {
		return "", errProtocol
	}
	size := int(length) + 2
	buf := make([]byte, min(size, chunk))
	for at := 0; ; {
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return "", err
		}
		if len(buf) == size {
			break
		}
		at = len(buf)
		buf = append(buf, make([]byte, min(size-at, at))...)
	}
	if buf[length] != '\r' || buf[length+1] != '\n' {
		return "", errProtocol
	}
	return string(buf[:length]), nil
}

func parseInt(digits []byte) (int64, error) {
	number, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, errProtocol
	}
	return number, nil
}

// number reads a fence or a count: scripts answer with digits. isNil: there is none.
func number(reply Reply) (number int64, isNil bool, err error) {
	switch reply := reply.(type) {
	case nil:
		return 0, true, nil
	case int64:
		return reply, false, nil
	case string:
		if len(reply) <= 16 {
			if number, err := strconv.ParseInt(reply, 10, 64); err == nil {
				return number, false, nil
			}
		}
	}
	return 0, false, errSurprise
}

// fields reads names and values: later versions of the module have more of them.
func fields(reply Reply) (map[string]Reply, error) {
	flat, isList := reply.([]Reply)
	if !isList {
		return nil, errSurprise
	}
	found := make(map[string]Reply, len(flat)/2)
	for at := 0; at+1 < len(flat); at += 2 {
		name, isText := flat[at].(string)
		if !isText {
			return nil, errSurprise
		}
		found[name] = flat[at+1]
	}
	return found, nil
}

func text(reply Reply) string {
	if text, isText := reply.(string); isText {
		return text
	}
	if reply == nil {
		return ""
	}
	return fmt.Sprint(reply)
}
