// runc-wrap starts runc on hosts whose processes cannot have CAP_SYS_RESOURCE.
//
// Without that capability runc cannot hand it on, lower an OOM score or raise a hard limit, so every
// privileged container fails, and each kind node is one. Before create and run (config.json of the
// bundle) and exec (the --process file) this takes the capability out of all sets, drops a negative
// OOM score and lowers limits to what this process has. Then it becomes the real runc: RUNC, or
// /usr/sbin/runc.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	realRunc    = "/usr/sbin/runc"
	unavailable = "CAP_SYS_RESOURCE"
)

// Resource numbers of Linux.
var limits = map[string]int{
	"RLIMIT_CPU": 0, "RLIMIT_FSIZE": 1, "RLIMIT_DATA": 2, "RLIMIT_STACK": 3, "RLIMIT_CORE": 4,
	"RLIMIT_RSS": 5, "RLIMIT_NPROC": 6, "RLIMIT_NOFILE": 7, "RLIMIT_MEMLOCK": 8, "RLIMIT_AS": 9,
	"RLIMIT_LOCKS": 10, "RLIMIT_SIGPENDING": 11, "RLIMIT_MSGQUEUE": 12, "RLIMIT_NICE": 13,
	"RLIMIT_RTPRIO": 14, "RLIMIT_RTTIME": 15,
}

// Options before the command that take a value.
var globalOptions = map[string]bool{
	"--root": true, "--log": true, "--log-format": true, "--criu": true, "--rootless": true,
}

type object = map[string]any

func main() {
	arguments := os.Args[1:]
	if err := adapt(arguments); err != nil {
		fail(err)
	}
	runc := os.Getenv("RUNC")
	if runc == "" {
		runc = realRunc
	}
	fail(syscall.Exec(runc, append([]string{runc}, arguments...), os.Environ()))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "runc-wrap:", err)
	os.Exit(127)
}

// adapt edits the file that the given command of runc is about to read.
func adapt(arguments []string) error {
	command, rest := split(arguments)
	switch command {
	case "create", "run":
		bundle := option(rest, "--bundle", "-b")
		return edit(filepath.Join(bundle, "config.json"), func(document object) object {
			process, _ := document["process"].(object)
			return process
		})
	case "exec":
		if file := option(rest, "--process", "-p"); file != "" {
			return edit(file, func(document object) object { return document })
		}
	}
	return nil
}

// split tells the command from what stands after it.
func split(arguments []string) (string, []string) {
	for i := 0; i < len(arguments); i++ {
		switch {
		case globalOptions[arguments[i]]:
			i++
		case !strings.HasPrefix(arguments[i], "-"):
			return arguments[i], arguments[i+1:]
		}
	}
	return "", nil
}

func option(arguments []string, long, short string) string {
	for i, argument := range arguments {
		name, value, joined := strings.Cut(argument, "=")
		if name != long && name != short {
			continue
		}
		if joined {
			return value
		}
		if i+1 < len(arguments) {
			return arguments[i+1]
		}
	}
	return ""
}

func edit(file string, processOf func(object) object) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // identifiers of 64 bits stay what they are
	var document object
	if err := decoder.Decode(&document); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if process := processOf(document); process != nil {
		weaken(process)
	}
	if text, err = json.Marshal(document); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// weaken takes from a process what this one cannot give.
func weaken(process object) {
	if sets, ok := process["capabilities"].(object); ok {
		for name, set := range sets {
			sets[name] = without(set)
		}
	}
	if score, ok := process["oomScoreAdj"].(json.Number); ok && strings.HasPrefix(score.String(), "-") {
		delete(process, "oomScoreAdj")
	}
	asked, _ := process["rlimits"].([]any)
	for _, one := range asked {
		if limit, ok := one.(object); ok {
			lower(limit)
		}
	}
}

func without(set any) any {
	names, ok := set.([]any)
	if !ok {
		return set
	}
	kept := make([]any, 0, len(names))
	for _, name := range names {
		if name != unavailable {
			kept = append(kept, name)
		}
	}
	return kept
}

func lower(limit object) {
	name, _ := limit["type"].(string)
	number, known := limits[name]
	var own syscall.Rlimit
	if !known || syscall.Getrlimit(number, &own) != nil {
		return
	}
	for _, key := range []string{"hard", "soft"} {
		asked, ok := limit[key].(json.Number)
		if !ok {
			continue
		}
		if value, err := strconv.ParseUint(asked.String(), 10, 64); err == nil && value > own.Max {
			limit[key] = own.Max
		}
	}
}
